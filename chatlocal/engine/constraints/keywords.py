"""The keywords of JSON Schema that limit values, by what they speak of. Titles, examples and the like mean nothing."""

from __future__ import annotations

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

OWN = frozenset(("type", "enum", "const", *NUMBER, *STRING, *ARRAY, *ARRAY_REFUSED, *OBJECT_ALL))
MEANINGFUL = OWN | {*PARTS, "then", "else", "unevaluatedProperties"}


def meaningful(schema: dict[str, object]) -> dict[str, object]:
    """The schema without annotations and unknown keywords."""
    return {key: value for key, value in schema.items() if key in MEANINGFUL}
