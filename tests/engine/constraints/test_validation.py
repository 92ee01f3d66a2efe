from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from chatlocal.engine.constraints.validation import check
from chatlocal.engine.errors import OutputInvalid, UnsupportedSchema


class Dog(BaseModel):
    name: str
    age: int = Field(ge=0)

    @field_validator("name")
    @classmethod
    def known(cls, name: str) -> str:
        if name == "Rex":
            raise ValueError("Rex is another dog")
        return name


@dataclass
class Point:
    x: int


class Movie(TypedDict):
    title: str


def test_an_instance_of_the_type_comes_back():
    assert check(Dog, '{"name": "Harry", "age": 3}') == Dog(name="Harry", age=3)
    assert check(Point, '{"x": 1}') == Point(1)
    assert check(Movie, '{"title": "a"}') == {"title": "a"}
    assert check(list[int], "[1]") == [1]


def test_a_schema_gives_the_plain_value():
    assert check({"type": "object", "required": ["a"]}, '{"a": [1, null]}') == {"a": [1, None]}


def test_pydantic_1_models():
    v1 = pytest.importorskip("pydantic.v1")

    class Old(v1.BaseModel):
        name: str

    assert check(Old, '{"name": "a"}') == Old(name="a")
    with pytest.raises(OutputInvalid, match="name"):
        check(Old, "{}")


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        (Dog, '{"name": "Harry", "age": -1}', "/age"),
        (Dog, '{"name": "Rex", "age": 1}', "another dog"),
        (Dog, '{"name": "Har', "cannot be read as JSON"),
        (Dog, "[" * 100_000, "cannot be read as JSON"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"properties": {"t": {"uniqueItems": True}}}, '{"t": [1, 1]}', "/t.*unique"),
        ({"type": "string", "format": "date"}, '"2022-02-30"', "date"),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, '{"a": [1, "x"]}', "/a/1"),
    ],
)
def test_what_fails_is_named_and_the_raw_text_kept(kind, text, named):
    with pytest.raises(OutputInvalid, match=named) as caught:
        check(kind, text)
    assert caught.value.raw == text


def test_the_draft_is_the_schemas_own():
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True}
    assert check(schema, "4") == 4
    with pytest.raises(OutputInvalid):
        check(schema, "3")


def test_nothing_is_fetched():
    with pytest.raises(Exception, match=r"example\.org"):
        check({"$ref": "http://example.org/schema.json"}, "1")


def test_a_broken_schema_is_not_the_answers_fault():
    with pytest.raises(UnsupportedSchema):
        check({"type": "strnig"}, "1")
    with pytest.raises(UnsupportedSchema):
        check({"pattern": "("}, '"a"')


def test_a_number_too_large_for_python_is_no_answer() -> None:
    for kind in ({"type": "number"}, float):
        with pytest.raises(OutputInvalid, match="1e9999"):
            check(kind, "1e9999")
    assert check({"type": "number"}, "1e308") == 1e308
