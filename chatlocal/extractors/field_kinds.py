"""What kind of value a field of a record holds, as its schema says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chatlocal.engine.field_list import resolve


def single_kind(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema of a value that may be null without that, and whether it may; others as they are."""
    variants = [resolve(each, root) for each in schema.get("anyOf") or schema.get("oneOf") or ()]
    kinds = [each for each in variants if each.get("type") != "null"]
    nullable = len(kinds) < len(variants)
    inner = dict(schema)
    if len(kinds) == 1:
        inner = {**{key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}, **kinds[0]}
    if isinstance(inner.get("type"), list) and "null" in inner["type"]:
        types = [each for each in inner["type"] if each != "null"]
        return {**inner, "type": types[0] if len(types) == 1 else types}, True
    return inner, nullable


def naming_field(item: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    """The field by which records are told apart: the first that is any text, else the first number."""
    for kinds in (("string",), ("integer", "number")):
        for name, child in item["properties"].items():
            inner = resolve(child, root)
            if inner.get("type") in kinds and "enum" not in inner and "const" not in inner and "format" not in inner:
                return str(name)
    return None


def may_be_offered(schema: Mapping[str, Any]) -> bool:
    """Whether a text can hold values of this kind: what is no object and no list."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return "enum" in schema or "const" in schema or set(kinds) <= {"string", "integer", "number", "boolean"}
