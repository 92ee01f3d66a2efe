"""The opposite of a schema, for the shapes in which it can be said without `not`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_TYPES = ("null", "boolean", "object", "array", "string", "number")


def negate(schema: Any) -> Any:
    """A schema valid for exactly the values that `schema` refuses; None when this file does not know one."""
    if isinstance(schema, bool) or not schema:
        return not (schema is True or schema == {})
    if len(schema) > 1:  # all its keywords hold at once, so the opposite breaks one of them
        shared = _object_test(schema)
        return shared if shared is not None else _any(negate({key: value}) for key, value in schema.items())
    ((key, value),) = schema.items()
    if key == "not":
        return value
    if key == "type":
        return _other_types([value] if isinstance(value, str) else value)
    if key in ("const", "enum"):
        return _other_values([value] if key == "const" else value)
    if key == "anyOf":
        children = [negate(child) for child in value]
        return None if any(child is None for child in children) else {"allOf": children}
    if key == "allOf":
        return _any(negate(child) for child in value)
    if key in ("required", "properties"):
        return _object_test(schema)
    return None


def _object_test(schema: dict[str, Any]) -> Any:
    """The opposite of `properties` and `required`: an object that lacks a name or has a wrong value in one."""
    if not schema.keys() <= {"type", "properties", "required"} or schema.get("type", "object") != "object":
        return None
    failing: list[Any] = [{"type": "object", "properties": {name: False}} for name in schema.get("required", ())]
    for name, child in schema.get("properties", {}).items():
        other = negate(child)
        if other is None:
            return None
        if other is not False:
            failing.append({"type": "object", "properties": {name: other}, "required": [name]})
    if "type" in schema:
        failing.append(_other_types(["object"]))
    return {"anyOf": failing} if failing else False


def _any(options: Iterable[Any]) -> Any:
    listed = list(options)
    return None if any(option is None for option in listed) else {"anyOf": listed}


def _other_types(types: list[str]) -> Any:
    if "integer" in types and "number" not in types:
        return None
    return {"type": [name for name in _TYPES if name not in types]}


def _other_values(values: list[Any]) -> Any:
    """Strings, booleans and null only: the numbers that are not 3 have no schema of their own."""
    strings = [value for value in values if isinstance(value, str)]
    if any(not isinstance(value, (str, bool, type(None))) for value in values):
        return None
    options: list[Any] = [{"type": ["object", "array", "number"]}]
    options += [{"const": value} for value in (None, True, False) if not any(value is other for other in values)]
    options.append({"type": "string", "pattern": f"^{other_strings(strings)}$"} if strings else {"type": "string"})
    return {"anyOf": options}


def other_strings(texts: Iterable[str]) -> str:
    """A regex for every text but these."""
    tree: dict[str, list[str]] = {}
    for text in texts:
        if text:
            tree.setdefault(text[0], []).append(text[1:])
    ways = [f"{re.escape(char)}{other_strings(rests)}" for char, rests in tree.items()]
    if tree:
        ways.append(f"[^{''.join(re.escape(char) for char in tree)}][\\s\\S]*")
    else:
        ways.append(r"[\s\S][\s\S]*")
    return f"(?:{'|'.join(ways)}){'' if '' in texts else '?'}"
