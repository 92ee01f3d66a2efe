"""Leaves with their places, confidences and flags; data that stays valid."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from chatlocal.engine.constraints import validation
from chatlocal.extractors.annotation import annotate
from chatlocal.extractors.grounding import Aligner


class Mood(Enum):
    good = "good"
    bad = "bad"


class Owner(BaseModel):
    name: str
    phone: str | None


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str
    age: int
    owner: Owner
    friends: list[str]
    mood: Mood
    colour: str = "brown"


SCHEMA = Dog.model_json_schema()
TEXT = "Rex, 3 years old, belongs to Harry Cole. He plays with Bella and Rex."
DATA: dict[str, Any] = {
    "kind": "dog",
    "name": "Rex",
    "age": 3,
    "owner": {"name": "Harry Cole", "phone": None},
    "friends": ["Bella", "Rex", "Tom"],
    "mood": "bad",
    "colour": "white",
}


def by_pointer(**options: Any) -> dict[str, Any]:
    return {field.pointer: field for field in annotate(DATA, SCHEMA, TEXT, **options)[1]}


def test_leaves_come_in_order_with_their_places() -> None:
    data, fields = annotate(DATA, SCHEMA, TEXT)
    assert data == DATA
    places = {field.pointer: field.span and TEXT[field.span.start : field.span.end] for field in fields}
    assert list(places.items()) == [
        ("/kind", None),
        ("/name", "Rex"),
        ("/age", "3"),
        ("/owner/name", "Harry Cole"),
        ("/owner/phone", None),
        ("/friends/0", "Bella"),
        ("/friends/1", "Rex"),
        ("/friends/2", None),
        ("/mood", None),
        ("/colour", None),
    ]
    starts = [field.span.start for field in fields if field.span and field.value == "Rex"]
    assert starts == [TEXT.index("Rex"), TEXT.rindex("Rex")]


def test_what_is_not_in_the_text_is_flagged_unless_the_schema_says_it() -> None:
    flagged = {pointer for pointer, field in by_pointer().items() if field.flags == ("ungrounded",)}
    assert flagged == {"/friends/2", "/colour"}


def test_a_value_that_an_example_has_and_the_text_has_not_is_copied() -> None:
    examples = [("Fido is a white dog.", {"name": "Fido", "colour": "White", "friends": []}), ("Nothing.", [])]
    fields = by_pointer(examples=examples)
    assert fields["/colour"].flags == ("ungrounded", "copied from an example")
    assert fields["/friends/2"].flags == ("ungrounded",)
    assert fields["/name"].flags == ()


def test_a_value_from_the_text_of_an_example_is_copied_too() -> None:
    assert by_pointer(examples=[("Tom is here.", {})])["/friends/2"].flags == ("ungrounded", "copied from an example")


def test_examples_may_be_instances() -> None:
    answer = [Dog.model_validate(DATA | {"colour": "white"})]
    assert "copied from an example" in by_pointer(examples=[("A dog.", answer)])["/colour"].flags


def test_nearly_what_the_text_says_and_exactly_what_an_example_says_is_copied() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    _, (field,) = annotate({"name": "John Smyth"}, schema, "by John Smith", examples=[{"name": "John Smyth"}])
    assert field.span is not None
    assert field.span.match == "fuzzy"
    assert field.flags == ("copied from an example",)


def test_values_of_low_confidence_leave_the_data_and_stay_in_their_fields() -> None:
    confidence = {"/owner/phone": 0.1, "/colour": 0.2, "/friends/1": 0.1, "/age": 0.9, "/mood": 0.4}
    data = DATA | {"owner": {"name": "Harry Cole", "phone": "555"}}
    kept, fields = annotate(data, SCHEMA, TEXT, confidence=confidence, min_confidence=0.5)
    low = {field.pointer: (field.value, field.confidence) for field in fields if "low confidence" in field.flags}
    assert low == {
        "/owner/phone": ("555", 0.1),
        "/friends/1": ("Rex", 0.1),
        "/mood": ("bad", 0.4),
        "/colour": ("white", 0.2),
    }
    # Null where it may be; the colour has a default, which would stand in its place and is nobody's word.
    assert kept == data | {"owner": {"name": "Harry Cole", "phone": None}}
    assert data["owner"] == {"name": "Harry Cole", "phone": "555"}


def test_a_key_that_may_be_absent_is_left_out() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    kept, fields = annotate({"a": "x", "b": "y"}, schema, "", confidence={"/a": 0.1, "/b": 0.1}, min_confidence=0.5)
    assert kept == {"a": "x"}
    assert [field.flags for field in fields] == [("ungrounded", "low confidence")] * 2


def test_a_bound_on_keys_keeps_one() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}
    kept, _ = annotate({"a": "x", "b": "y"}, schema, "x y", confidence={"/a": 0.1, "/b": 0.1}, min_confidence=0.5)
    assert kept == {"b": "y"}


def test_a_value_alone() -> None:
    kept, (field,) = annotate("x", {"type": ["string", "null"]}, "x", confidence={"": 0.1}, min_confidence=0.5)
    assert kept is None
    assert (field.pointer, field.value, field.flags) == ("", "x", ("low confidence",))


@pytest.mark.parametrize("low", [[], ["/name"], ["/owner/phone", "/friends/0"], ["/kind", "/mood", "/colour", "/age"]])
def test_what_comes_back_is_valid(low: list[str]) -> None:
    kept, _ = annotate(DATA, SCHEMA, TEXT, confidence=dict.fromkeys(low, 0.0), min_confidence=0.5)
    validation.check(SCHEMA, Dog.model_validate(kept).model_dump_json())


def test_definitions_lists_and_keys_with_slashes() -> None:
    schema = {
        "type": "array",
        "items": {"$ref": "#/$defs/A"},
        "$defs": {"A": {"type": "object", "properties": {"a/b": {"anyOf": [{"enum": ["no"]}, {"type": "null"}]}}}},
    }
    kept, fields = annotate([{"a/b": "no"}], schema, "yes", confidence={"/0/a~1b": 0.2}, min_confidence=0.5)
    assert kept == [{"a/b": None}]
    assert [(field.pointer, field.flags) for field in fields] == [("/0/a~1b", ("low confidence",))]


def test_records_of_one_text_share_its_places() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    text = "Ann: Paris. Bob: Paris."
    aligner = Aligner(text)
    fields = [annotate({"city": "Paris"}, schema, text, aligner=aligner)[1][0] for _ in range(2)]
    assert [field.span and field.span.start for field in fields] == [5, 17]


def test_a_validated_field_is_one_of_its_alternatives() -> None:
    class Reading(BaseModel):
        value: int | str = Field(union_mode="left_to_right")

    _, (field,) = annotate({"value": "1,200"}, Reading.model_json_schema(), "It was 1200.")
    assert field.span is not None
    assert field.span.match == "normalised"


def test_a_value_goes_to_the_place_near_its_record() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "year": {"type": "integer"}}}
    text = "Ann founded it in 2001 with two dogs. Later, Bob joined in 2001, and Cid in 2004."
    _, (_, year) = annotate({"name": "Bob", "year": 2001}, schema, text)
    assert year.span is not None
    assert year.span.start == text.rindex("2001")


def test_the_nearest_object_with_a_place_of_its_own_decides() -> None:
    data = [{"who": "Ann", "at": {"city": "Paris"}}, {"who": "Cid", "at": {"city": "Paris"}}]
    text = "Paris, May. Ann lives in Paris. Bob came from Paris, and Cid stayed in Paris."
    _, fields = annotate(data, {"type": "array"}, text)
    places = [field.span.start for field in fields if field.span and field.value == "Paris"]
    assert places == [text.index("Paris."), text.rindex("Paris")]


def test_other_records_do_not_say_where_a_value_is() -> None:
    data = [{"city": "Paris"}, {"city": "Paris"}, {"city": "Rome"}]
    text = "Paris is far. We saw Paris, Rome."
    _, fields = annotate(data, {"type": "array"}, text)
    assert [field.span and field.span.start for field in fields] == [0, text.rindex("Paris"), text.index("Rome")]
