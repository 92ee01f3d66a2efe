"""A document with its keys in declared order: a schema's own properties, those of its parts, then all others."""

from __future__ import annotations

import re
from typing import Any

from jsonschema.protocols import Validator

from chatlocal.engine.constraints.drafts import checker


def reorder(value: Any, schema: Any) -> Any:
    return _reorder(value, [schema], checker(schema))


def _reorder(value: Any, schemas: list[Any], root: Validator) -> Any:
    reached = [node for schema in schemas for node in _in_place(value, schema, root, ())]
    if isinstance(value, list):
        return [_reorder(item, _for_item(reached, place), root) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    order: dict[str, None] = {}
    for keyword in ("properties", "required", "dependencies"):
        for node in reached:
            order |= dict.fromkeys(node.get(keyword, ()))
    keys = [name for name in order if name in value] + [name for name in value if name not in order]
    return {key: _reorder(value[key], _for_key(reached, key), root) for key in keys}


def _in_place(value: Any, schema: Any, root: Validator, seen: tuple[str, ...]) -> list[dict[str, Any]]:
    """The schema and all that speak of the same value."""
    if not isinstance(schema, dict):
        return []
    reached = [schema]
    for key, child in schema.items():
        if key == "$ref" and isinstance(child, str) and child not in seen:
            reached += _in_place(value, _target(child, root.schema), root, (*seen, child))
        if key in ("anyOf", "oneOf") and schema.keys().isdisjoint({"properties", "required", "allOf"}):
            child = [option for option in child if _valid(value, option, root)][:1]  # each has an order of its own
        if key in ("allOf", "anyOf", "oneOf"):
            for option in child:
                reached += _in_place(value, option, root, seen)
        if key in ("if", "then", "else"):
            reached += _in_place(value, child, root, seen)
        if key in ("dependencies", "dependentSchemas"):
            for option in child.values():
                reached += _in_place(value, option, root, seen)
    return reached


def _valid(value: Any, schema: Any, root: Validator) -> bool:
    return bool(root.evolve(schema=schema).is_valid(value))


def _target(ref: str, root: Any) -> Any:
    node = root
    for part in ref.partition("#")[2].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node


def _for_key(reached: list[dict[str, Any]], key: str) -> list[Any]:
    found = [node["properties"][key] for node in reached if key in node.get("properties", {})]
    for node in reached:
        found += [child for pattern, child in node.get("patternProperties", {}).items() if re.search(pattern, key)]
        if "additionalProperties" in node and key not in node.get("properties", {}):
            found.append(node["additionalProperties"])
    return found


def _for_item(reached: list[dict[str, Any]], place: int) -> list[Any]:
    found = []
    for node in reached:
        prefix = node.get("prefixItems", node.get("items") if isinstance(node.get("items"), list) else [])
        rest = node.get("additionalItems") if isinstance(node.get("items"), list) else node.get("items")
        found.append(prefix[place] if place < len(prefix) else rest)
    return found
