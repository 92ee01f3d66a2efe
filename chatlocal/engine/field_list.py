"""A JSON Schema in plain words, for models that never learned to read one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# A schema that contains itself is written out this deep; below that the kind alone is named.
_DEPTH = 3


def describe(schema: Mapping[str, Any]) -> str:
    """One line, such as "a JSON object with: name (The dog's name); color (The dog's color)".

    Says what the fields are, not everything that the schema demands: the grammar enforces the rest.
    """
    words = _words(schema, schema, 0)
    if words.startswith("an object"):
        return "a JSON object" + words.removeprefix("an object")
    return f"JSON: {words}"


def _words(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = resolve(schema, root)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None:
        return "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        return " or ".join(dict.fromkeys(_words(variant, root, depth) for variant in variants))
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return " or ".join(_words({**schema, "type": one}, root, depth) for one in kind)
    if kind == "object" and schema.get("properties") and depth < _DEPTH:
        fields = [_field(name, value, root, depth + 1) for name, value in schema["properties"].items()]
        return "an object with: " + "; ".join(fields)
    if kind == "array" and depth < _DEPTH and schema.get("items"):
        return f"a list, each {_words(schema['items'], root, depth + 1)}"
    return _KINDS.get(kind or "", _ANY)


_ANY = "a value"
_KINDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _field(name: str, schema: Any, root: Mapping[str, Any], depth: int) -> str:
    resolved = resolve(schema, root)
    described = str(resolved.get("description") or "").strip().rstrip(".")
    words = _words(resolved, root, depth)
    # Beside a description the bare kind is a distraction to small models (measured); a choice or a list is not.
    if described:
        return (
            f"{name} ({described})" if words in _KINDS.values() or words == _ANY else f"{name} ({described}: {words})"
        )
    return name if words == _ANY else f"{name} ({words})"


def resolve(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema behind a `$ref`, with what stands beside the reference on top; {} for what is no schema object."""
    seen: set[str] = set()
    beside: dict[str, Any] = {}
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str) and schema["$ref"] not in seen:
        seen.add(schema["$ref"])
        beside = {**schema, **beside}
        schema = _at(root, schema["$ref"])
    if not isinstance(schema, Mapping):
        schema = {}
    return {**schema, **{key: value for key, value in beside.items() if key != "$ref"}}


def _at(root: Mapping[str, Any], reference: str) -> Any:
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) and key else None if key else found
    return found
