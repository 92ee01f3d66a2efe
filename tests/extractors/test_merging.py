"""Records of parts as records of a document: which are the same, what they become, where they stand."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from chatlocal.extractors.merging import merge, moved
from chatlocal.extractors.record_schema import read_record_schema
from chatlocal.extractors.results import Extraction, Failure, Field, Record, Span
from chatlocal.extractors.splitting import Part


class Dog(BaseModel):
    name: str | None = None
    color: str | None = None
    food: str | None = None
    toys: list[str] = []


class Cat(BaseModel):
    name: str


DOGS = read_record_schema(list[Dog])
TEXT = "Rex is a brown dog. Rex eats fish. Ben is a black dog. Rex is an old black dog."
#       0        9          20            35          47       55
WHOLE = Part(0, len(TEXT))


def dog(data: dict[str, Any], start: int = 0, end: int = 0, confidence: float | None = None, **places: int) -> Record:
    """A record whose string values stand at these places of the text; the others were not found."""
    fields = []
    for name, value in data.items():
        for pointer, leaf in (
            [(f"/{name}/{i}", item) for i, item in enumerate(value)]
            if isinstance(value, list)
            else [(f"/{name}", value)]
        ):
            at = places.get(name if not isinstance(value, list) else leaf)
            span = None if at is None else Span(at, at + len(str(leaf)), "exact")
            fields.append(Field(pointer, leaf, span, confidence))
    return Record(data, Dog(**data), "Dog", tuple(fields), "d", start, end)


def extraction(*records: Record, **rest: Any) -> Extraction:
    return Extraction([one.data for one in records], [one.value for one in records], records, **rest)


def merged(*parts: tuple[Part, Extraction], schema: Any = DOGS, **options: Any) -> list[Any]:
    return merge(parts, schema, **options).data


def test_offsets_become_those_of_the_document() -> None:
    read = extraction(dog({"name": "Ben"}, 0, 19, name=0), failures=(Failure("X", "x", "raw", 3, 5),))
    there = moved(read, Part(35, 54), "d")
    assert there.records[0].fields[0].span == Span(35, 38, "exact")
    assert (there.records[0].start, there.records[0].end, there.records[0].document) == (35, 54, "d")
    assert (there.failures[0].start, there.failures[0].end) == (38, 40)
    assert there.document == "d"


def test_a_record_of_the_overlap_is_one_record() -> None:
    left = dog({"name": "Rex", "color": "brown"}, name=0, color=9)
    right = dog({"name": "Rex", "color": "brown"}, name=0, color=9)
    assert merged((Part(0, 34), extraction(left)), (Part(0, 54), extraction(right))) == [left.data]


def test_the_same_values_at_other_places_are_two_records() -> None:
    one, two = dog({"name": "Rex"}, name=0), dog({"name": "Rex"}, name=55)
    assert merged((WHOLE, extraction(one)), (WHOLE, extraction(two))) == [{"name": "Rex"}, {"name": "Rex"}]
    assert merged((WHOLE, extraction(one, two))) == [{"name": "Rex"}, {"name": "Rex"}]


def test_a_record_that_was_cut_gets_what_it_lacks() -> None:
    left = dog({"name": "Rex", "color": "brown", "food": None}, name=0, color=9)
    right = dog({"name": "Rex", "color": None, "food": "fish"}, name=0, food=29)
    result = merge([(Part(0, 19), extraction(left)), (Part(0, 34), extraction(right))], DOGS)
    (record,) = result.records
    assert record.data == {"name": "Rex", "color": "brown", "food": "fish"}
    assert record.value == Dog(name="Rex", color="brown", food="fish")
    assert [(one.pointer, one.span and one.span.start) for one in record.fields] == [
        ("/name", 0),
        ("/color", 9),
        ("/food", 29),
    ]
    assert (record.start, record.end) == (0, 33)
    assert result.value == [record.value]


def test_records_that_share_one_word_and_differ_in_another_are_two() -> None:
    one = dog({"name": "Rex", "color": "black"}, name=55, color=68)
    two = dog({"name": "Ben", "color": "black"}, name=35, color=68)
    assert len(merged((WHOLE, extraction(one)), (WHOLE, extraction(two)))) == 2


def test_a_repeated_record_of_one_answer_is_one_record() -> None:
    again = dog({"name": "Rex", "color": "brown"}, name=0, color=9)
    assert len(merged((WHOLE, extraction(again, again)))) == 1


def test_equal_records_without_places_of_one_answer_stay() -> None:
    same = dog({"color": "good"}, 0, 19)
    assert len(merged((Part(0, 19), extraction(same, same)))) == 2


@pytest.mark.parametrize(("start", "count"), [(15, 1), (19, 2)])
def test_equal_records_without_places_are_one_where_their_parts_overlap(start: int, count: int) -> None:
    one, two = dog({"color": "good"}, 0, 19), dog({"color": "Good "}, start, 54)
    assert len(merged((Part(0, 19), extraction(one)), (Part(start, 54), extraction(two)))) == count


def test_with_a_key_records_of_all_places_are_one() -> None:
    one = dog({"name": "Rex", "color": "brown", "toys": ["ball"]}, name=0, color=9)
    two = dog({"name": "rex ", "color": None, "toys": ["Ball", "rope"]}, name=55)
    other = dog({"name": "Ben", "color": "black"}, name=35, color=47)
    data = merged((WHOLE, extraction(one, other)), (WHOLE, extraction(two)), key=["name"])
    assert data == [{"name": "Rex", "color": "brown", "toys": ["ball", "rope"]}, other.data]


def test_items_that_came_over_have_their_new_pointers() -> None:
    one = dog({"name": "Rex", "toys": ["brown"]}, name=0, brown=9)
    two = dog({"name": "Rex", "toys": ["fish", "brown"]}, name=0, brown=9, fish=29)
    (record,) = merge([(WHOLE, extraction(one)), (WHOLE, extraction(two))], DOGS).records
    assert record.data["toys"] == ["brown", "fish"]
    assert {one.pointer: one.value for one in record.fields} == {"/name": "Rex", "/toys/0": "brown", "/toys/1": "fish"}


def test_a_record_without_its_key_is_judged_by_its_place() -> None:
    cut = dog({"name": None, "color": "brown"}, color=9)
    whole = dog({"name": "Rex", "color": "brown"}, name=0, color=9)
    assert merged((WHOLE, extraction(cut)), (WHOLE, extraction(whole)), key=["name"]) == [whole.data]


def test_records_of_two_kinds_are_never_one() -> None:
    schema = read_record_schema([Dog, Cat])
    cat = Record({"name": "Rex"}, Cat(name="Rex"), "Cat", (Field("/name", "Rex", Span(0, 3, "exact")),))
    one = dog({"name": "Rex"}, name=0)
    for key in (None, ["name"]):
        assert len(merged((WHOLE, extraction(one)), (WHOLE, extraction(cat)), schema=schema, key=key)) == 2


def test_where_values_differ_the_one_in_the_text_wins_then_the_surer_one_then_the_first() -> None:
    def color(first: Record, second: Record) -> Any:
        (record,) = merged((WHOLE, extraction(first)), (WHOLE, extraction(second)), key=["name"])
        return record["color"]

    absent = dog({"name": "Rex", "color": "grey"}, confidence=0.9)
    found = dog({"name": "Rex", "color": "brown"}, confidence=0.2, color=9)
    surer = dog({"name": "Rex", "color": "black"}, confidence=0.8, color=68)
    assert color(absent, found) == color(found, absent) == "brown"
    assert color(found, surer) == color(surer, found) == "black"
    assert color(absent, dog({"name": "Rex", "color": "blue"}, confidence=0.9)) == "grey"


def test_one_record_for_a_text_gathers_from_all_parts() -> None:
    schema = read_record_schema(Dog)
    one = dog({"name": "", "color": "brown", "toys": []}, color=9)
    two = dog({"name": "Rex", "color": None, "toys": ["rope"]}, name=20)
    parts = [(Part(0, 19), extraction(one)), (Part(20, 34), extraction(two))]
    result = merge(parts, schema, document="d")
    assert result.data == {"name": "Rex", "color": "brown", "toys": ["rope"]}
    assert result.value == Dog(name="Rex", color="brown", toys=["rope"])
    assert len(result.records) == 1


def test_a_value_that_was_left_out_for_its_confidence_is_filled_or_still_told_of() -> None:
    flagged = Field("/color", "grey", None, 0.1, ("low confidence",))
    unsure = Record({"name": "Rex"}, Dog(name="Rex"), "Dog", (Field("/name", "Rex", Span(0, 3, "exact")), flagged))
    again = dog({"name": "Rex", "food": ""}, name=0)
    (record,) = merge([(WHOLE, extraction(unsure)), (WHOLE, extraction(again))], DOGS).records
    assert record.data == {"name": "Rex", "food": ""}
    assert flagged in record.fields
    sure = dog({"name": "Rex", "color": "brown", "food": "fish"}, name=0, color=9, food=29)
    (record,) = merge([(WHOLE, extraction(unsure)), (WHOLE, extraction(sure))], DOGS).records
    assert record.data == {"name": "Rex", "color": "brown", "food": "fish"}
    assert flagged not in record.fields


def test_readings_that_break_a_rule_of_the_class_together_stay_apart() -> None:
    class Either(BaseModel):
        name: str | None = None
        color: str | None = None

        @model_validator(mode="after")
        def _not_both(self) -> Either:
            if self.name and self.color:
                raise ValueError("one of them")
            return self

    schema = read_record_schema(Either)
    first = Record({"name": "Rex"}, Either(name="Rex"), "Either", (Field("/name", "Rex", Span(0, 3, "exact")),))
    second = Record({"color": "red"}, Either(color="red"), "Either", (Field("/color", "red"),))
    assert merged((WHOLE, extraction(first)), (WHOLE, extraction(second)), schema=schema) == {"name": "Rex"}


def test_records_come_in_the_order_of_the_text_whatever_part_found_them() -> None:
    late, early = dog({"name": "Ben"}, name=35), dog({"name": "Rex"}, name=0)
    nowhere = dog({"name": "Max"}, 0, 54)
    first = (Part(0, 54), extraction(late, nowhere))
    second = (Part(0, 20), extraction(early))
    assert [one["name"] for one in merged(first, second)] == ["Rex", "Ben", "Max"]


def test_a_record_whose_first_value_was_found_later_stands_where_that_is() -> None:
    cut = dog({"name": "Max", "color": "black"}, color=68)
    whole = dog({"name": "Rex", "color": "black", "food": "fish"}, name=55, color=68, food=29)
    other = dog({"name": "Ben"}, name=60)
    parts = [(WHOLE, extraction(cut, other)), (WHOLE, extraction(whole))]
    schema_key = merge(parts, DOGS, key=["color"]).records
    assert [record.fields[0].span and record.fields[0].span.start for record in schema_key] == [55, 60]


def test_failures_answers_and_usage_of_all_parts_are_kept() -> None:
    failure = Failure("OutputInvalid", "no", "{", 20, 34)
    parts = [
        (Part(0, 19), extraction(raw=("[]",), usage={"prompt_tokens": 3})),
        (Part(20, 34), Extraction(None, None, failures=(failure,), raw=("{",), usage={"prompt_tokens": 4})),
    ]
    result = merge(parts, DOGS, document="d")
    assert (result.failures, result.raw, result.usage) == ((failure,), ("[]", "{"), {"prompt_tokens": 7})
    assert result.data is None
    assert merge(parts[:1], DOGS).data == []
