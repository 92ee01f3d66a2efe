"""A quick look at whether a schema keeps the rules of draft 2020-12.

jsonschema's own check takes about a millisecond for each schema inside of a schema. This one says yes only where that
one does; for what it does not know it says no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_TYPES = frozenset(("null", "boolean", "object", "array", "string", "number", "integer"))


def keeps_2020_12(schema: Any) -> bool:
    """Whether a schema without "$schema" certainly keeps the rules."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            return False
        for key, value in node.items():
            if key in _NESTED:
                waiting.append(value)
            elif key in _NAMED:
                if not isinstance(value, dict):
                    return False
                waiting += value.values()
            elif key in _LISTED:
                if not isinstance(value, list) or not value:
                    return False
                waiting += value
            elif key in _VALUES and not _VALUES[key](value):
                return False
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value)) and len(set(value)) == len(value)


def _types(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _names(names) and bool(names) and _TYPES.issuperset(names)


def _never(value: Any) -> bool:
    return False


def _table() -> Iterator[tuple[str, Callable[[Any], bool]]]:
    yield from dict.fromkeys(("$ref", "$comment", "title", "description", "pattern", "format"), _text).items()
    yield from dict.fromkeys(("contentMediaType", "contentEncoding"), _text).items()
    yield from dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag).items()
    yield from dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number).items()
    yield "multipleOf", lambda value: _number(value) and value > 0
    for what in ("Length", "Items", "Properties", "Contains"):
        yield f"min{what}", _count
        yield f"max{what}", _count
    yield "required", _names
    yield "dependentRequired", lambda value: isinstance(value, dict) and all(map(_names, value.values()))
    yield "type", _types
    yield from dict.fromkeys(("enum", "examples"), lambda value: isinstance(value, list)).items()
    names = ("$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
    yield from dict.fromkeys((*names, "$vocabulary", "dependencies"), _never).items()


_VALUES = dict(_table())
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_LISTED = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NESTED = frozenset(
    ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "contentSchema")
) | {"unevaluatedItems", "unevaluatedProperties"}
