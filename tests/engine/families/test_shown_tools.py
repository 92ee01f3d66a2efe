"""Models read tools without references, as far as that can be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field

from chatlocal.engine import families
from chatlocal.engine.families import JinjaFamily
from chatlocal.engine.families.shown_tools import written_out
from tests.engine.families.templates import TOOLS
from tests.tiny import tiny_tokenizer


class Address(BaseModel):
    street: str


class Person(BaseModel):
    """A person."""

    name: str
    address: Address = Field(description="Home address")


class Tree(BaseModel):
    """A tree."""

    value: int
    children: list[Tree] = []
    owner: Address


HI = [{"role": "user", "content": "Hi"}]
ADDRESS = {
    "properties": {"street": {"type": "string"}},
    "required": ["street"],
    "type": "object",
    "description": "Home address",
}


@pytest.mark.parametrize(
    "family",
    [families.get("qwen"), families.get("mistral_v3"), families.get("chatglm3"), JinjaFamily(tiny_tokenizer(), TOOLS)],
)
def test_no_reference_is_left_in_a_prompt(family: Any) -> None:
    tool = {"name": "person", "parameters": Person.model_json_schema()}
    text = family.render(HI, [tool]).text
    assert "$ref" not in text
    assert "$defs" not in text
    assert "Home address" in text


def test_what_stands_beside_a_reference_is_kept() -> None:
    parameters = convert_to_openai_tool(Person)["function"]["parameters"]
    assert written_out(parameters)["properties"]["address"] == ADDRESS
    schema = {"$defs": {"A": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/A", "description": "one"}}}
    assert written_out(schema) == {"properties": {"a": {"type": "string", "description": "one"}}}


def test_a_model_of_itself_keeps_its_definition_beside_the_reference() -> None:
    schema = Tree.model_json_schema()
    written = written_out(schema)
    assert set(written["$defs"]) == {"Address", "Tree"}
    assert json.dumps(written).count("#/$defs/Tree") >= 1


def test_definitions_that_double_at_each_step_stay_small() -> None:
    steps = {f"S{n}": {"anyOf": [{"$ref": f"#/$defs/S{n + 1}"}, {"$ref": f"#/$defs/S{n + 1}"}]} for n in range(40)}
    schema = {
        "$defs": {**steps, "S40": {"type": "string"}},
        "$ref": "#/$defs/S0",
        "properties": {"a": {"$ref": "#/$defs/S0"}},
    }
    written = written_out(schema)
    assert len(json.dumps(written)) < 1_000_000
    assert "S40" in written["$defs"]


def test_a_schema_without_definitions_is_left_alone() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    assert written_out(schema) is schema
    assert written_out({**schema, "$defs": {"A": {}}}) == schema


@pytest.mark.parametrize("reference", ["#/$defs/C~1D", "#/$defs/A/properties/b", "other.json#/x"])
def test_definitions_stay_where_a_reference_stays(reference: str) -> None:
    schema = {"$defs": {"C/D": {}, "A": {"properties": {"b": {}}}}, "properties": {"c": {"$ref": reference}}}
    assert written_out(schema) == schema


def test_lists_of_values_are_data() -> None:
    values = [{"$ref": "#/$defs/A"}]
    schema = {"$defs": {"A": {"type": "string"}}, "properties": {"a": {"enum": values}, "b": {"$ref": "#/$defs/A"}}}
    assert written_out(schema)["properties"] == {"a": {"enum": values}, "b": {"type": "string"}}


@pytest.mark.parametrize(
    "schema", [{"$defs": [1]}, {"$defs": {f"A{n}": {"$ref": f"#/$defs/A{n + 1}"} for n in range(3000)}}]
)
def test_odd_definitions_are_shown_as_they_came(schema: dict[str, Any]) -> None:
    schema = {**schema, "properties": {"a": {"$ref": "#/$defs/A0"}}}
    assert written_out(schema) == schema
