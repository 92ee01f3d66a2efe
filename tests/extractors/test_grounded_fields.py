"""Which strings of a schema must be spans of the text."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from chatlocal.engine import constraints
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.grounded_fields import demand_spans, demands_spans
from tests.tiny import tiny_tokenizer

TEXT = "Rex belongs to Harry."


class Person(BaseModel):
    name: str
    friends: list[Person] = []


class Dog(BaseModel):
    name: str
    owner: Person
    vet: Person | None = None
    kind: Literal["dog"] = "dog"
    born: date | None = None
    code: str | None = Field(None, pattern="[A-Z]+")
    notes: dict[str, str] = {}


def accepts(fields: Any, answer: dict[str, Any], schema: dict[str, Any] | None = None) -> bool:
    held = demand_spans(schema or Dog.model_json_schema(), fields)
    spec = constraints.json_schema(held, text=TEXT)
    return constraints.compile(spec, tiny_tokenizer()).accepts(json.dumps(answer))


def test_every_string_without_a_form_of_its_own() -> None:
    assert accepts(True, {"name": "Rex", "owner": {"name": "Harry"}})
    assert not accepts(True, {"name": "Tom", "owner": {"name": "Harry"}})
    assert not accepts(True, {"name": "Rex", "owner": {"name": "Tom"}})
    assert not accepts(True, {"name": "Rex", "owner": {"name": "Harry", "friends": [{"name": "Tom"}]}})
    assert accepts(True, {"name": "Rex", "owner": {"name": "Harry", "friends": [{"name": "Rex"}]}})
    assert accepts(True, {"name": "Rex", "owner": {"name": "Rex"}, "vet": None, "kind": "dog", "born": "2024-01-01"})
    assert not accepts(True, {"name": "Rex", "owner": {"name": "Rex"}, "notes": {"a": "b"}})
    assert accepts(True, {"name": "Rex", "owner": {"name": "Rex"}, "notes": {"a": "to"}})


def test_a_field_by_its_name_wherever_it_stands() -> None:
    assert not accepts(["name"], {"name": "Rex", "owner": {"name": "Tom"}})
    assert accepts(["name"], {"name": "Rex", "owner": {"name": "Harry"}, "notes": {"a": "b"}})


def test_a_field_with_those_around_it() -> None:
    assert accepts(["owner.name"], {"name": "Tom", "owner": {"name": "Rex"}, "vet": {"name": "Tom"}})
    assert not accepts(["owner.name"], {"name": "Tom", "owner": {"name": "Tom"}})


def test_all_strings_of_a_field_that_is_an_object() -> None:
    assert accepts(["vet"], {"name": "Tom", "owner": {"name": "Tom"}, "vet": {"name": "Rex"}})
    assert not accepts(["vet"], {"name": "Tom", "owner": {"name": "Tom"}, "vet": {"name": "Tom"}})
    assert not accepts(
        ["vet"], {"name": "a", "owner": {"name": "a"}, "vet": {"name": "Rex", "friends": [{"name": "b"}]}}
    )


def test_nothing_demanded_is_the_schema_itself() -> None:
    schema = Dog.model_json_schema()
    assert demand_spans(schema, False) is schema
    assert not demands_spans(schema)
    assert demands_spans(demand_spans(schema, True))


def test_the_schema_that_was_given_stays_as_it_is() -> None:
    schema = Dog.model_json_schema()
    demand_spans(schema, True)
    assert schema == Dog.model_json_schema()


def test_a_keyword_of_the_users_own_is_kept() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-span": "characters"}}, "required": ["a"]}
    assert accepts(True, {"a": "ong"}, schema)
    assert accepts(["a"], {"a": "ong"}, schema)


def test_objects_of_other_forms_stay_free() -> None:
    schema = {"type": "object", "patternProperties": {"^a": {"type": "string"}}}
    assert accepts(True, {"a": "anything"}, schema)


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(UnsupportedInput, match=r"no field 'nam' to ground.* name,"):
        demand_spans(Dog.model_json_schema(), ["nam"])


@pytest.mark.parametrize("field", ["kind", "born", "code"])
def test_a_field_that_cannot_be_held_is_named(field: str) -> None:
    with pytest.raises(UnsupportedInput, match=f"'{field}' cannot be held"):
        demand_spans(Dog.model_json_schema(), [field])
