"""Schemas in plain words."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from chatlocal.engine.field_list import describe


class Color(enum.Enum):
    red = "red"
    blue = "blue"


class Wheel(BaseModel):
    """One of its wheels."""

    size: int = Field(description="Inches")


class Bike(BaseModel):
    name: str = Field(description="The bike's name.")
    color: Color = Field(description="Its color")
    wheels: list[Wheel]
    owner: str | None = None
    front: Wheel = Field(description="The wheel in front")


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


def test_a_model_as_a_line_of_fields() -> None:
    assert describe(Bike.model_json_schema()) == (
        'a JSON object with: name (The bike\'s name); color (Its color: one of "red", "blue"); '
        "wheels (a list, each an object with: size (Inches)); owner (text or null); "
        "front (The wheel in front: an object with: size (Inches))"
    )


def test_a_schema_within_itself_comes_to_an_end() -> None:
    words = describe(Tree.model_json_schema())
    assert words.startswith("a JSON object with: value (a whole number); children (a list, each an object with: value")
    assert words.count("children") <= 3


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object"}, "a JSON object"),
        ({"type": "array", "items": {"type": "string"}}, "JSON: a list, each text"),
        ({"enum": ["ja", 1, None]}, 'JSON: one of "ja", 1, null'),
        ({"const": "x"}, 'JSON: one of "x"'),
        ({"type": ["string", "null"]}, "JSON: text or null"),
        ({"properties": {"a": True, "b": {}}}, "a JSON object with: a; b"),
        ({"$ref": "#/$defs/N", "$defs": {"N": {"$ref": "#/$defs/N"}}}, "JSON: a value"),
        ({"$ref": "#/nowhere"}, "JSON: a value"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}}, "JSON: true or false"),
        (
            {"properties": {"名字": {"type": "string", "description": "狗的名字。"}}},
            "a JSON object with: 名字 (狗的名字。)",
        ),
    ],
)
def test_other_schemas(schema: dict[str, Any], words: str) -> None:
    assert describe(schema) == words
