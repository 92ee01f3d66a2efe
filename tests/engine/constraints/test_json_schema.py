"""What JSON Schema constraints take and refuse, as whole texts."""

from __future__ import annotations

import contextlib
import datetime
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict

from chatlocal.engine import constraints
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def compiled(schema_or_type: Any, **options: Any) -> constraints.Constraint:
    return constraints.compile(constraints.json_schema(schema_or_type, **options), TOKENIZER)


def expect(constraint: constraints.Constraint, accepted: list[str], refused: list[str]) -> None:
    assert [text for text in accepted if not constraint.accepts(text)] == []
    assert [text for text in refused if constraint.accepts(text)] == []


PARTS_BESIDE_PROPERTIES = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "modifier": {"type": "string"}, "x": {"type": "string"}},
    "additionalProperties": False,
    "anyOf": [{"required": ["name"]}, {"required": ["x"]}],
}


@pytest.mark.parametrize("closed", [True, False])
def test_any_of_beside_properties(closed):
    expect(
        compiled(PARTS_BESIDE_PROPERTIES, closed=closed),
        ['{"name": "a"}', '{"x": "a"}', '{"name": "a", "modifier": "b", "x": "c"}'],
        ['{"modifier": "a"}', '{"zzz": 1}', "42", "{}"],
    )


@pytest.mark.parametrize("closed", [True, False])
def test_required_without_properties(closed):
    expect(compiled({"type": "object", "required": ["a"]}, closed=closed), ['{"a": 1}'], ["{}", '{"b": 1}'])


def test_integer_bounds():
    schema = {"type": "integer", "minimum": -5, "maximum": 17}
    expect(compiled(schema), ["-5", "0", "9", "17"], ["-6", "18", "00", "1.5", "-17"])


def test_number_bounds():
    schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    in_range = ["0.5", "1", "1.0", "0.001"]
    expect(compiled(schema), in_range, ["0", "0.0", "1.01", "-0.1", "1e1", "1e-400", "2e-0"])


def test_bounds_of_draft_4():
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3}
    expect(compiled(schema | {"exclusiveMinimum": True}), ["4"], ["3"])
    expect(compiled(schema | {"exclusiveMinimum": False}), ["3"], ["2"])


def test_optional_and_required_keys_in_declared_order():
    integers = {name: {"type": "integer"} for name in "abcd"}
    schema = {"type": "object", "properties": integers, "required": ["b", "d"], "additionalProperties": False}
    expect(
        compiled(schema),
        [
            '{"b": 0, "d": 0}',
            '{"a": 0, "b": 0, "c": 0, "d": 0}',
            '{"a": 0, "b": 0, "d": 0}',
            '{"b": 0, "c": 0, "d": 0}',
        ],
        ['{, "b": 0, "d": 0}', '{"b": 0, "d": 0, }', '{"b": 0, "a": 0, "d": 0}', '{"a": 0, "b": 0}'],
    )


def test_all_keys_optional():
    schema = {"type": "object", "properties": {"result": {"type": "boolean"}, "feedback": {"type": "string"}}}
    expect(
        compiled(schema),
        ["{}", '{"result": true}', '{"feedback": "x"}', '{"result": true, "feedback": "x"}'],
        ['{"result": true, }', '{"result": true, "more": 1}'],
    )


def test_many_optional_fields():
    fields: dict[str, Any] = {f"f{number}": (int | None, None) for number in range(24)}
    constraint = compiled(create_model("Many", **fields))
    expect(constraint, ["{}", '{"f3": 1, "f20": null}', json.dumps(dict.fromkeys(fields, 7))], ['{"f20": 1, "f3": 1}'])


class Node(BaseModel):
    v: int
    c: list[Node]


def test_recursion_to_any_depth():
    document = '{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": [{"v": 4, "c": [{"v": 5, "c": []}]}]}]}]}'
    expect(compiled(Node), [document], ['{"v": 1}', document[:-1]])


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/N", "$defs": {"N": {"$ref": "#/$defs/N"}}},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"$ref": "#/$defs/A"}}},
    ],
)
def test_a_reference_to_itself_is_refused(schema):
    with pytest.raises(UnsupportedSchema) as caught:
        compiled(schema)
    assert caught.value.keyword == "$ref"


class Cat(BaseModel):
    pet_type: Literal["cat"]
    meows: int


class Dog(BaseModel):
    pet_type: Literal["dog"]
    barks: float


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="pet_type")
    n: int


def test_discriminated_union():
    cat, dog = '{"pet": {"pet_type": "cat", "meows": 2}, "n": 1}', '{"pet": {"pet_type": "dog", "barks": 1.5}, "n": 1}'
    constraint = compiled(Owner)
    expect(constraint, [cat, dog], ['{"pet": {"pet_type": "cat", "barks": 1.5}, "n": 1}'])
    assert constraint.left_to_validation == ()
    assert isinstance(constraints.validation.check(Owner, cat).pet, Cat)
    assert isinstance(constraints.validation.check(Owner, dog).pet, Dog)


def test_format_date():
    schema = {"type": "object", "properties": {"key": {"type": "string", "format": "date"}}, "required": ["key"]}
    expect(
        compiled(schema),
        ['{"key": "2022-02-02"}', '{"key": "2024-02-29"}'],
        ['{"key": 2022-02-02}', '{"key": "2022-13-40"}', '{"key": "nope"}', '{"key": "2023-02-29"}'],
    )


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("time", ["09:30:00", "23:59:59.25+02:00", "00:00:00Z"], ["24:00:00", "9:30:00", "09:30"]),
        ("date-time", ["2022-02-02T09:30:00Z", "2022-02-02T09:30:00.5-11:30"], ["2022-02-02T09:30:00", "2022-02-02"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
        ("uuid4", ["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-12d3-a456-426614174000"]),
        ("ipv4", ["127.0.0.1"], ["256.0.0.1"]),
        ("email", ["a@b.org"], ["a.b.org"]),
    ],
)
def test_formats(name, accepted, refused):
    constraint = compiled({"type": "string", "format": name})
    expect(constraint, list(map(json.dumps, accepted)), list(map(json.dumps, refused)))
    assert constraint.left_to_validation == ()


def test_an_unknown_format_is_left_to_validation():
    constraint = compiled({"type": "object", "properties": {"p": {"type": "string", "format": "expose"}}})
    assert constraint.left_to_validation == ('format "expose" at /properties/p',)
    assert constraint.accepts('{"p": "anything"}')


def test_unique_items_are_left_to_validation():
    constraint = compiled(create_model("Tagged", tags=(set[str], ...)))
    assert constraint.left_to_validation == ("uniqueItems at /properties/tags",)
    assert constraint.accepts('{"tags": ["a", "a"]}')


def test_patterns_are_searched_for_and_go_with_lengths():
    schema = {"type": "string", "pattern": "b+", "minLength": 2, "maxLength": 3}
    expect(compiled(schema), ['"ab"', '"abc"', '"bb"'], ['"b"', '"ac"', '"abcd"'])


@pytest.mark.parametrize("char", ["\\", '"'])
def test_a_class_that_shuts_out_what_json_escapes(char):
    constraint = compiled({"type": "string", "pattern": f"^[^\\{char}]+$"})
    expect(constraint, ['"ab"', '"a\\nb"'], [json.dumps(f"a{char}b"), json.dumps(char)])


def test_pattern_classes_mean_what_ecma_says():
    expect(compiled({"type": "string", "pattern": "^[a[&&]$"}), ['"["', '"&"', '"a"'], ['"b"', '"]"'])


def test_look_around_is_left_to_validation():
    assert compiled({"type": "string", "pattern": "^(?!a)b"}).left_to_validation == ("pattern at /",)


def test_enum_with_awkward_values():
    values = ['a"b', "c/d\\e", "é", "红\n", 1, 1.5, None, True, {"a": [1, 2]}, []]
    constraint = compiled({"enum": values})
    expect(constraint, [json.dumps(value, ensure_ascii=False) for value in values], ['"a"', "2", "false", "{}", "1.25"])


def test_enum_values_that_the_rest_of_the_schema_refuses_are_left_out():
    expect(compiled({"type": "string", "maxLength": 1, "enum": ["a", "bb", 1]}), ['"a"'], ['"bb"', "1"])
    with pytest.raises(UnsupportedSchema, match="no value is valid"):
        compiled({"type": "integer", "enum": ["a"]})


def test_tuples():
    expect(
        compiled(tuple[int, str]),
        ['[1, "a"]'],
        ["[1]", '[1, "a", "b"]', '["a", 1]', "[]"],
    )
    older = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    expect(compiled(older | {"type": "array", "additionalItems": False}), ["[1]", "[]"], ['["a"]', "[1, 2]"])


def test_reference_with_siblings():
    schema = {
        "$ref": "#/$defs/Base",
        "properties": {"b": {"type": "integer"}},
        "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
    }
    expect(
        compiled(schema),
        ['{"b": 1, "a": "x"}', '{"a": "x"}'],
        ['{"b": 1}', '{"b": "x", "a": "x"}', '{"a": "x", "c": 1}'],
    )


def test_up_to_draft_7_the_siblings_of_a_reference_mean_nothing():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"n": {"$ref": "#/definitions/N", "maximum": 3}},
        "definitions": {"N": {"type": "integer"}},
    }
    assert compiled(schema).accepts('{"n": 99}')


class Stop(Enum):
    red = "red"
    three = 3


class Movie(TypedDict, total=False):
    title: str
    year: int


@dataclass
class Point:
    x: int
    tags: list[str]


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (Stop, ['"red"', "3"], ['"blue"']),
        (Literal["a", 2], ['"a"', "2"], ['"2"']),
        (Movie, ['{"title": "a"}', "{}"], ['{"title": 1}']),
        (Point, ['{"x": 1, "tags": ["a"]}'], ['{"x": 1}']),
        (dict[str, int], ['{"any": 1}', "{}"], ['{"any": "1"}']),
        (dict[Literal["a", "b"], int], ['{"a": 1, "b": 2}'], ['{"c": 1}']),
        (dict[int, str], ['{"-7": "a"}'], ['{"x": "a"}']),
        (dict[UUID, int], ['{"123e4567-e89b-12d3-a456-426614174000": 1}'], ['{"a": 1}']),
        (list[int | None], ["[1, null]"], ['["a"]']),
        (Decimal, ['"12.50"', "12.5"], ['"abc"']),
        (Annotated[Decimal, Field(ge=0, max_digits=4, decimal_places=2)], ["99.25"], ["100.5", "1.255", "-1"]),
        (datetime.datetime, ['"2024-05-06T09:30:00"', '"2024-05-06T09:30:00Z"'], ['"2024-05-06"']),
        (datetime.timedelta, ['"P1DT2H"', '"PT0S"'], ['"1 day"']),
        (bool, ["true"], ["1", "True"]),
    ],
)
def test_python_types(kind, accepted, refused):
    expect(compiled(kind), accepted, refused)


def test_aliases_are_the_keys():
    class Aliased(BaseModel):
        name: str = Field(alias="full-name")

    expect(compiled(Aliased), ['{"full-name": "a"}'], ['{"name": "a"}'])


def test_pydantic_1_models():
    v1 = pytest.importorskip("pydantic.v1")

    class Old(v1.BaseModel):
        name: str
        age: int

    expect(compiled(Old), ['{"name": "a", "age": 1}'], ['{"name": "a"}'])


def test_closing_keeps_undeclared_keys_out_only_where_properties_are_declared():
    schema = {"type": "object", "properties": {"a": {"type": "object"}}}
    expect(compiled(schema), ['{"a": {"any": 1}}'], ['{"b": 1}'])
    expect(compiled(schema, closed=False), ['{"a": {"any": 1}}', '{"b": 1}'], [])
    expect(compiled(schema | {"additionalProperties": {"type": "integer"}}), ['{"b": 1}'], ['{"b": "x"}'])


def test_closing_takes_the_names_of_all_parts():
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}},
        "required": ["extra"],
        "allOf": [{"properties": {"a": {"type": "integer"}}}],
        "anyOf": [{"properties": {"b": {"type": "integer"}}}, {"properties": {"c": {"type": "integer"}}}],
    }
    expect(
        compiled(schema),
        ['{"kind": "x", "a": 1, "b": 2, "c": 3, "extra": null}', '{"extra": 1}'],
        ['{"kind": "x"}', '{"kind": "x", "zzz": 1, "extra": 1}', '{"a": "x", "extra": 1}'],
    )


def test_the_branches_of_a_union_are_closed_each_for_itself():
    expect(compiled(Cat | Dog), ['{"pet_type": "cat", "meows": 1}'], ['{"pet_type": "cat", "meows": 1, "barks": 1}'])


def test_separators():
    constraint = compiled(Point, separators=(",", ":"))
    expect(constraint, ['{"x":1,"tags":["a","b"]}'], ['{"x": 1, "tags": []}', '{"x":1,\n"tags":[]}'])


def test_no_white_space_but_the_separators():
    expect(compiled(Point), [], ['{ "x": 1, "tags": []}', '{"x": 1,  "tags": []}', '{"x": 1, "tags": []}\n'])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}, "maxItems": 18446744073709551615},
        {"type": "string", "maxLength": 2**40},
        {"type": "string", "pattern": "^((a{1000}){1000}){1000}$"},
        {"type": "array", "minItems": 2**40},
        {"type": "number", "multipleOf": 1e-300},
    ],
)
def test_huge_bounds_compile_or_raise(schema):
    with contextlib.suppress(UnsupportedSchema):
        assert compiled(schema).start().mask().any()


def test_bounds_of_2000_are_kept():
    items = compiled({"type": "array", "items": {"type": "integer"}, "maxItems": 2000})
    assert items.accepts(json.dumps([1] * 2000))
    assert not items.accepts(json.dumps([1] * 2001))
    text = compiled({"type": "string", "maxLength": 2000})
    assert text.accepts(json.dumps("a" * 2000))
    assert not text.accepts(json.dumps("a" * 2001))


def test_any_of_nested_30_deep():
    schema: dict[str, Any] = {"type": "integer"}
    for length in range(30):
        schema = {"anyOf": [{"const": "x" * length}, schema]}
    expect(compiled(schema), ["7", '"xxx"', '""'], ['"y"'])


def test_too_deep_a_schema_is_a_named_error():
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UnsupportedSchema, match="deep"):
        compiled(schema)


def test_a_modest_model_with_many_lengths():
    class Example(BaseModel):
        a: str = Field(max_length=60)
        b: list[Annotated[str, Field(max_length=20)]] = Field(max_length=5)
        c: str = Field(max_length=200)
        d: list[Annotated[str, Field(max_length=100)]] = Field(max_length=5)
        e: list[Annotated[str, Field(max_length=20)]] = Field(max_length=15)
        f: list[Annotated[str, Field(max_length=30)]] = Field(max_length=15)

    document = {"a": "x" * 60, "b": ["y" * 20] * 5, "c": "", "d": [], "e": ["z"] * 15, "f": ["w" * 30]}
    constraint = compiled(Example)
    assert constraint.accepts(json.dumps(document))
    assert not constraint.accepts(json.dumps(document | {"a": "x" * 61}))
    assert not constraint.accepts(json.dumps(document | {"e": ["z"] * 16}))
    assert compiled(Example) is constraint


@pytest.mark.parametrize(
    ("schema", "keyword", "path"),
    [
        ({"properties": {"a/b": {"type": "array", "contains": {"type": "integer"}}}}, "contains", "/properties/a~1b"),
        ({"properties": {"a": {"not": {"pattern": "x"}}}}, "not", "/properties/a"),
        ({"if": {"minLength": 3}, "then": {"pattern": "x"}}, "if", ""),
        ({"unevaluatedItems": False}, "unevaluatedItems", ""),
        ({"$ref": "http://example.org/other.json"}, "$ref", ""),
        ({"$ref": "#/$defs/Gone"}, "$ref", ""),
        ({"properties": {"a": {}}, "propertyNames": {"pattern": "^a"}}, "propertyNames", ""),
        ({"type": "strnig"}, "anyOf", "/type"),
        ({"properties": []}, "type", "/properties"),
        ({"minLength": "3"}, "type", "/minLength"),
        (False, "not", ""),
    ],
)
def test_what_cannot_be_enforced_is_named(schema, keyword, path):
    with pytest.raises(UnsupportedSchema) as caught:
        compiled(schema)
    assert (caught.value.keyword, caught.value.path) == (keyword, path)


@pytest.mark.parametrize("value", [3, "name", [1], object()])
def test_what_is_no_schema_is_refused(value):
    with pytest.raises(UnsupportedInput):
        constraints.json_schema(value)


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"type": "object", "not": {"required": ["a"]}}, ["{}", '{"b": 1}'], ['{"a": 1}']),
        ({"not": {"type": ["object", "array", "null"]}}, ["1", '"a"', "true"], ["{}", "[]", "null"]),
        ({"type": "string", "not": {"enum": ["a", "ab"]}}, ['"b"', '""', '"abc"'], ['"a"', '"ab"', "1"]),
        (
            {
                "type": "object",
                "properties": {"k": {"type": "string"}, "n": {"type": "integer"}},
                "if": {"properties": {"k": {"const": "x"}}, "required": ["k"]},
                "then": {"required": ["n"]},
            },
            ['{"k": "x", "n": 1}', '{"k": "y"}', "{}"],
            ['{"k": "x"}', '{"k": 1}'],
        ),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
            ['{"b": 1}', '{"a": 1, "b": 1}', "{}"],
            ['{"a": 1}'],
        ),
        (
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
            ['{"a": 1}'],
            ["{}", '{"a": 1, "b": 1}'],
        ),
        ({"type": "object", "propertyNames": {"pattern": "^x"}}, ['{"x1": 1}'], ['{"y": 1}']),
        (
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2},
            ['{"a": 1}', '{"a": 1, "c": 1}'],
            ["{}", '{"a": 1, "b": 1, "c": 1}'],
        ),
        ({"allOf": [{"minimum": 2}, {"maximum": 3}], "type": "integer"}, ["2", "3"], ["1", "4"]),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, ['"ab"', '"ba"'], ['"a"', '"b"']),
        (
            {
                "allOf": [{"$ref": "#/$defs/A"}],
                "unevaluatedProperties": False,
                "$defs": {"A": {"properties": {"a": {}}}},
            },
            ['{"a": 1}'],
            ['{"b": 1}'],
        ),
    ],
)
def test_parts_are_enforced(schema, accepted, refused):
    constraint = compiled(schema)
    expect(constraint, accepted, refused)
    assert constraint.left_to_validation == ()
