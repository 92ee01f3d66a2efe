"""The keywords of JSON Schema that limit values, by what they speak of. Titles, examples and the like mean nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chatlocal.engine.constraints.references import escape

NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING = ("minLength", "maxLength", "pattern", "format")
ARRAY = ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems")
ARRAY_REFUSED = ("contains", "minContains", "maxContains", "unevaluatedItems")
OBJECT = ("properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties")
OBJECT_ALL = (*OBJECT, "maxProperties")

# Parts that speak of the same value as the schema in which they stand.
PARTS = (
    *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies"),
    *("$dynamicRef", "$recursiveRef"),
)

# Our own: a string must be a span of the text that the spec gives: "words" (or true), or "characters".
SPAN = "x-span"

OWN = frozenset(("type", "enum", "const", SPAN, *NUMBER, *STRING, *ARRAY, *ARRAY_REFUSED, *OBJECT_ALL))
MEANINGFUL = OWN | {*PARTS, "then", "else", "unevaluatedProperties"}

# Our own: a list of texts that name what a type asks for beyond its schema, such as a validator.
LEFT = "x-left-to-validation"

# Where subschemas stand: under names, in a list, alone (`items` may be a list, a dependency a list of names).
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_NESTED = (
    *("allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalItems", "contains", "not", "if", "then", "else"),
    *("additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
)
_SAYS_NOTHING = ("title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly")


def bare(schema: Any, lone_refs: bool) -> Any:
    """The schema without titles, descriptions and the like, at every level.

    `lone_refs`: without what stands beside a $ref too, definitions excepted; up to draft 7 it means nothing.
    """
    if isinstance(schema, list):
        return [bare(child, lone_refs) for child in schema]
    if not isinstance(schema, dict):
        return schema
    lone = lone_refs and isinstance(schema.get("$ref"), str)
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SAYS_NOTHING or (lone and key in MEANINGFUL and key != "$ref"):
            continue
        if key in _NAMED and isinstance(value, dict):
            value = {name: bare(child, lone_refs) for name, child in value.items()}
        elif key in _NESTED:
            value = bare(value, lone_refs)
        out[key] = value
    return out


def left_in(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    """What is named under LEFT in a schema and in those inside of it, with the place as a JSON pointer."""
    if isinstance(schema, list):
        for place, child in enumerate(schema):
            yield from left_in(child, f"{path}/{place}")
    elif isinstance(schema, dict):
        yield from ((what, path) for what in schema.get(LEFT, ()))
        for key, value in schema.items():
            if key in _NAMED and isinstance(value, dict):
                for name, child in value.items():
                    yield from left_in(child, f"{path}/{key}/{escape(name)}")
            elif key in _NESTED:
                yield from left_in(value, f"{path}/{key}")


def meaningful(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without annotations and unknown keywords."""
    return {key: value for key, value in schema.items() if key in MEANINGFUL}


def shown(schema: Any) -> Any:
    """A schema as a model is shown it: without what is our own."""
    if isinstance(schema, list):
        return [shown(child) for child in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: shown(child) for key, child in schema.items() if key not in (LEFT, SPAN)}
