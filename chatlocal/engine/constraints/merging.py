"""Schemas that hold together, as one. None of them has parts such as `allOf`; only their children may get one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from chatlocal.engine.constraints.keywords import ARRAY, OBJECT_ALL
from chatlocal.engine.errors import UnsupportedSchema

_TYPES = ("null", "boolean", "object", "array", "string", "number", "integer")

# How two values of a keyword come to one. What is not here and not an array's or object's keyword is kept apart.
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "minLength": max,
    "maxLength": min,
    "minItems": max,
    "maxItems": min,
    "minProperties": max,
    "maxProperties": min,
    "uniqueItems": lambda left, right: left or right,
    "required": lambda left, right: list(dict.fromkeys([*left, *right])),
    "type": lambda left, right: _common_types(left, right),
}


def merge(schemas: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """One schema in most cases; further ones for what cannot be said twice in one (two patterns, two formats).

    UnsupportedSchema for patternProperties of two parts that limit each other's other keys.
    """
    if len(schemas) < 2:
        return schemas
    plain = [draft4_bounds(schema) for schema in schemas]
    merged: list[dict[str, Any]] = [_children(plain, path)]
    for schema in plain:
        for key, value in schema.items():
            if key in merged[0] and key in _COMBINE:
                merged[0][key] = _COMBINE[key](merged[0][key], value)
            elif key not in _STRUCTURE:
                place = next((part for part in merged if part.get(key, value) == value), None)
                if place is None:
                    merged.append({key: value})
                else:
                    place[key] = value
    return merged


def both(schemas: Iterable[Any]) -> Any:
    """A schema for what is valid for all of these."""
    distinct = {json.dumps(schema, sort_keys=True): schema for schema in schemas}
    kept = [schema for schema in distinct.values() if schema is not True and schema != {}]
    if any(schema is False for schema in kept):
        return False
    return kept[0] if len(kept) == 1 else {"allOf": kept} if kept else True


def without_repeats(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out optional properties that say the same as the pattern their name matches: one of the two is enough.

    The backend combines the two, which it cannot do for recursive ones.
    """
    patterns = schema.get("patternProperties", {})
    if not patterns:
        return schema
    kept = {}
    for name, child in schema.get("properties", {}).items():
        matching = [other for pattern, other in patterns.items() if _matches(pattern, name)]
        repeats = matching and both([child, *matching]) == both(matching)
        if not repeats or name in schema.get("required", ()):
            kept[name] = child
    return schema | {"properties": kept}


def draft4_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Draft 4's exclusiveMinimum is a boolean that speaks of minimum; later it is a number of its own."""
    out = dict(schema)
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(out.get(exclusive), bool):
            strict = out.pop(exclusive)
            if strict and plain in out:
                out[exclusive] = out.pop(plain)
    return out


def tuple_items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of the rest; up to 2019-09 the former stood in `items`."""
    if isinstance(schema.get("items"), list):
        return schema["items"], schema.get("additionalItems", True)
    return schema.get("prefixItems", []), schema.get("items", True)


_STRUCTURE = frozenset({"items", "prefixItems", "additionalItems", "properties", "patternProperties"}) | {
    "additionalProperties",
    "propertyNames",
}


def _children(schemas: list[dict[str, Any]], path: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    arrays = [schema for schema in schemas if schema.keys() & set(ARRAY)]
    if arrays:
        out |= _items(arrays)
    objects = [schema for schema in schemas if schema.keys() & set(OBJECT_ALL)]
    if objects:
        out |= _keys(objects, path)
    return out


def _items(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    tuples = [tuple_items(schema) for schema in schemas]
    length = max(len(first) for first, _ in tuples)
    places = [both(first[place] if place < len(first) else rest for first, rest in tuples) for place in range(length)]
    rest = both(rest for _, rest in tuples)
    return ({"prefixItems": places} if places else {}) | ({} if rest is True else {"items": rest})


def _keys(schemas: list[dict[str, Any]], path: str) -> dict[str, Any]:
    names = dict.fromkeys(name for schema in schemas for name in schema.get("properties", ()))
    out: dict[str, Any] = {}
    if names:
        out["properties"] = {name: both(_for_key(schema, name) for schema in schemas) for name in names}
    patterns: dict[str, list[Any]] = {}
    for schema in schemas:
        for pattern, child in schema.get("patternProperties", {}).items():
            others = [other for other in schemas if other is not schema]
            if any("patternProperties" in other and "additionalProperties" in other for other in others):
                raise UnsupportedSchema("patternProperties", path, "two combined schemas limit each other's other keys")
            rest = (other.get("additionalProperties", True) for other in others)
            patterns.setdefault(pattern, []).extend([child, *rest])
    if patterns:
        out["patternProperties"] = {pattern: both(children) for pattern, children in patterns.items()}
    for keyword in ("additionalProperties", "propertyNames"):
        given = [schema[keyword] for schema in schemas if keyword in schema]
        if given:
            out[keyword] = both(given)
    return out


def _for_key(schema: dict[str, Any], name: str) -> Any:
    found = [child for key, child in schema.get("properties", {}).items() if key == name]
    found += [child for pattern, child in schema.get("patternProperties", {}).items() if _matches(pattern, name)]
    return both(found) if found else schema.get("additionalProperties", True)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error as error:
        raise UnsupportedSchema("patternProperties", "", f"the pattern {pattern!r} cannot be read: {error}") from error


def _common_types(left: Any, right: Any) -> list[str]:
    ours, theirs = _type_set(left), _type_set(right)
    shared = ours & theirs
    return [name for name in _TYPES if name in shared and not (name == "integer" and "number" in shared)]


def _type_set(types: Any) -> set[str]:
    named = {types} if isinstance(types, str) else set(types)
    return named | {"integer"} if "number" in named else named
