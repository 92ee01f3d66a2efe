"""Worked examples in the shape of the answer that is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from chatlocal.engine.constraints import validation
from chatlocal.engine.worked_examples import is_flat, worked_examples

NAME = {"type": "string", "description": "The dog's name"}
DOG: dict[str, Any] = {"type": "object", "properties": {"name": NAME}}
HOUSE: dict[str, Any] = {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": "integer"}}}
LIST: dict[str, Any] = {"type": "array", "items": DOG}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"name": NAME, **fields}}


SHAPES: dict[str, dict[str, Any]] = {
    "a record": DOG,
    "a record in a record": {"type": "object", "properties": {"output": DOG}},
    "a list": {"type": "array", "items": {"$ref": "#/$defs/Dog"}, "$defs": {"Dog": DOG}},
    "a list in a record": {"type": "object", "properties": {"dogs": LIST}},
    "a list of lists": {"type": "array", "items": LIST},
    "texts": record(tricks={"type": "array", "items": {"type": "string"}}),
    "a record as a field": record(house=HOUSE),
    "a list as a field": record(houses={"type": "array", "items": HOUSE}),
    "everything": record(houses={"type": "array", "items": HOUSE}, first=HOUSE, tricks={"type": "array"}),
    "not a record": {"type": "string"},
}
CHINESE: dict[str, Any] = {"type": "object", "properties": {"名字": {"type": "string", "description": "狗的名字"}}}
IN_CHINESE: list[dict[str, Any]] = [
    {"type": "array", "items": CHINESE},
    {
        "type": "object",
        "properties": {
            "狗": CHINESE,
            "爱好": {"type": "array", "items": {"type": "string"}},
            "小狗": {"type": "array", "items": CHINESE},
        },
    },
]


def values(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from values(inner)
    else:
        yield value


@pytest.mark.parametrize("schema", [*SHAPES.values(), *IN_CHINESE])
def test_each_answer_fits_its_form_and_tells_what_the_text_says(schema: dict[str, Any]) -> None:
    examples = list(worked_examples(schema))
    assert len(examples) == 2
    for example in examples:
        validation.check(example.schema, json.dumps(example.answer))
        for value in values(example.answer):
            assert isinstance(value, bool) or str(value) in example.text


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        ("a record", ()),
        ("a record in a record", ("output",)),
        ("a list", (0,)),
        ("a list in a record", ("dogs", 0)),
        ("a list of lists", (0, 0)),
    ],
)
def test_what_is_wrapped_around_the_answer_is_wrapped_around_the_examples(shape: str, path: tuple[Any, ...]) -> None:
    for example in worked_examples(SHAPES[shape]):
        answer = example.answer
        for step in path:
            assert isinstance(answer, list) if step == 0 else list(answer) == [step]
            answer = answer[step]
        # A record of several values, none of them wrapped any further.
        assert len(answer) > 1
        assert not any(isinstance(value, (dict, list)) for value in answer.values())


@pytest.mark.parametrize("shape", ["a list", "a list in a record", "a list of lists"])
def test_lists_hold_several_records_and_not_always_as_many(shape: str) -> None:
    lengths = []
    for example in worked_examples(SHAPES[shape]):
        records = example.answer
        while not (isinstance(records, list) and isinstance(records[0], dict)):
            records = records["dogs"] if isinstance(records, dict) else records[0]
        lengths.append(len(records))
    assert min(lengths) > 1
    assert len(set(lengths)) == 2


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        ("texts", [(list, str)]),
        ("a record as a field", [(dict, str)]),
        ("a list as a field", [(list, dict)]),
        ("everything", [(list, dict), (dict, str), (list, str)]),
    ],
)
def test_a_record_of_parts_has_examples_with_such_parts(shape: str, kinds: list[tuple[type, type]]) -> None:
    for example in worked_examples(SHAPES[shape]):
        parts = [value for value in example.answer.values() if isinstance(value, (dict, list))]
        assert [(type(part), type(next(iter(part)))) for part in parts] == kinds
        assert len(example.answer) > len(parts)


def test_examples_of_lists_and_parts_are_chinese_where_the_schema_is() -> None:
    for schema in IN_CHINESE:
        for example in worked_examples(schema):
            assert not any("a" <= character.lower() <= "z" for character in example.text)
    for schema in (CHINESE, LIST):
        assert all(example.text.isascii() for example in worked_examples(schema))


@pytest.mark.parametrize("shape", SHAPES)
def test_flat_is_one_record_without_parts(shape: str) -> None:
    assert is_flat(SHAPES[shape]) == (shape in ("a record", "a record in a record", "not a record"))


def test_references_of_pydantic_models_are_followed() -> None:
    class Owner(BaseModel):
        name: str
        city: str

    class Kennel(BaseModel):
        owner: Owner
        dogs: list[Owner]

    for example in worked_examples(Kennel.model_json_schema()):
        kinds = [type(value) for value in example.answer.values() if isinstance(value, (dict, list))]
        assert kinds == [dict, list]
