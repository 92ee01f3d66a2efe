"""The shortest texts of schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints.normalise import normalise
from chatlocal.engine.constraints.shortest_values import shortest_values
from tests.engine.constraints.vocabularies import sentencepiece
from tests.engine.constraints.walking import spelled, written
from tests.tiny import tiny_tokenizer

# Every value of it opens an object, and the one that ends it comes last.
EXPRESSION: dict[str, Any] = {
    "anyOf": [{"$ref": "#/$defs/sum"}, {"$ref": "#/$defs/negative"}, {"$ref": "#/$defs/number"}],
    "$defs": {
        "sum": {
            "type": "object",
            "properties": {"terms": {"type": "array", "items": {"$ref": "#"}, "minItems": 2}},
            "required": ["terms"],
        },
        "negative": {"type": "object", "properties": {"of": {"$ref": "#"}}, "required": ["of"]},
        "number": {"type": "object", "properties": {"zahl": {"type": "number"}}, "required": ["zahl"]},
    },
}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"enum": ["longer", "a", None]}, '"a"'),
        ({"type": "integer", "minimum": 7, "multipleOf": 5}, "10"),
        ({"type": "integer", "exclusiveMinimum": 7}, "8"),
        ({"type": "number", "exclusiveMaximum": -2.5}, "-3"),
        ({"type": "number", "minimum": 0.25, "maximum": 0.25}, "0.25"),
        ({"type": "string", "pattern": "^[a-z]{2,5}[0-9]$", "minLength": 5}, '"aaaa0"'),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, "[true, true]"),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 3},
            '{"": 0, "a": 0, "aa": 0}',
        ),
        (
            {"type": "object", "properties": {"a/b~c": {"type": "null"}, "d": {}}, "required": ["a/b~c"]},
            '{"a/b~c": null}',
        ),
        (EXPRESSION, '{"zahl": 0}'),
    ],
)
def test_the_shortest_text(schema: dict[str, Any], text: str) -> None:
    assert shortest_values(normalise(schema, closed=True).schema, (", ", ": "))[0] == text


@pytest.mark.parametrize("make", [tiny_tokenizer, sentencepiece])
def test_an_end_is_found_where_every_value_opens_an_object(make: Any) -> None:
    tokenizer = make()
    constraint = constraints.compile(constraints.json_schema(EXPRESSION), tokenizer)
    begun = '{"terms": [{"of": {"terms": ['
    state = written(constraint, tokenizer, begun)
    way = state.ending(200)
    assert way is not None
    text = begun + b"".join(spelled(tokenizer)[id] for id in way).decode()
    assert json.loads(text)["terms"][1].keys() == {"zahl"}
    assert constraint.accepts(text)
