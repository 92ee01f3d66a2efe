"""Strings that are spans of a text: exactly those, in every vocabulary, with any budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from chatlocal.engine import constraints
from chatlocal.engine.constraints.left_to_validation import left_to_validation
from chatlocal.engine.constraints.word_borders import borders
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema
from chatlocal.engine.messages import Sampling
from tests.engine.constraints.test_token_budget import least, written
from tests.engine.constraints.vocabularies import lacking, sentencepiece
from tests.engine.constraints.walking import walk
from tests.tiny import tiny_model, tiny_tokenizer

SPAN: dict[str, Any] = {"type": "string", "x-span": True}
ANY: dict[str, Any] = {"type": "string", "x-span": "characters"}
TEXT = 'Ann said "hi \\ there"\n她说你好 100% in Annex\x01 cafe\u0301s. '

texts = st.text(
    st.sampled_from('abe 你好\n"\\/né\u0301\t\x00\x01\x7f\u2028 👩\u200d👧\U0010ffffu0.') | st.characters(codec="utf-8")
)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def compiled(schema: Any, text: str, tokenizer: Any = None) -> constraints.Constraint:
    return constraints.compile(constraints.json_schema(schema, text=text), tokenizer or tiny_tokenizer())


def spans(text: str) -> set[str]:
    """Every span from word to word, and the empty one; by the definition, not by an automaton."""
    places = borders(text)
    found = {text[start:end] for start in places for end in places if start < end}
    return {""} | {span for span in found if not (span[0].isspace() or span[-1].isspace())}


@pytest.mark.parametrize(
    "value", ["", "Ann", "hi", "\\ there", 'there"\n她说', "她", "说你", "100%", "cafe\u0301s", "Annex\x01"]
)
def test_a_span_is_taken(value: str) -> None:
    assert compiled(SPAN, TEXT).accepts(json_text(value))


@pytest.mark.parametrize("value", ["An", "nex", " said", "said ", "\n", "n她说", "cafe", "Bob", "said  hi", "ann"])
def test_what_is_no_span_is_not_taken(value: str) -> None:
    assert not compiled(SPAN, TEXT).accepts(json_text(value))


@pytest.mark.parametrize("written", ['"\\u0041nn"', '"caf\\u0065"', '"\\u5979"'])
def test_a_span_is_written_as_itself(written: str) -> None:
    assert not compiled(ANY, TEXT).accepts(written)


@settings(max_examples=60, deadline=None)
@given(texts, st.data())
def test_exactly_the_spans_of_a_text(text: str, data: st.DataObject) -> None:
    constraint, known = compiled(SPAN, text), spans(text)
    for span in data.draw(st.lists(st.sampled_from(sorted(known)), max_size=8)):
        assert constraint.accepts(json_text(span))
    start = data.draw(st.integers(0, len(text)))
    piece = text[start : data.draw(st.integers(start, len(text)))]
    assert constraint.accepts(json_text(piece)) == (piece in known)
    assert compiled(ANY, text).accepts(json_text(piece))
    other = data.draw(texts)
    assert constraint.accepts(json_text(other)) == (other in known)
    assert compiled(ANY, text).accepts(json_text(other)) == (other in text)


@settings(max_examples=40, deadline=None)
@given(texts, st.integers(0, 4), st.integers(0, 4), st.data())
def test_lengths_hold_beside(text: str, minimum: int, more: int, data: st.DataObject) -> None:
    schema = {**SPAN, "minLength": minimum, "maxLength": minimum + more}
    within = [span for span in spans(text) if minimum <= len(span) <= minimum + more]
    if not within:
        with pytest.raises(UnsupportedSchema, match=f"no span of {minimum} to {minimum + more} characters"):
            compiled(schema, text)
    else:
        constraint = compiled(schema, text)
        for span in data.draw(st.lists(st.sampled_from(sorted(spans(text))), max_size=8)):
            assert constraint.accepts(json_text(span)) == (span in within)


@settings(max_examples=30, deadline=None)
@given(texts, st.integers(0, 1000), st.sampled_from([tiny_tokenizer, sentencepiece, lambda: lacking("bx")]))
def test_whatever_is_chosen_is_in_the_text(text: str, seed: int, make: Any) -> None:
    item = {"anyOf": [SPAN, {"type": "null"}]}
    schema = {
        "type": "object",
        "properties": {"one": SPAN, "many": {"type": "array", "items": item, "maxItems": 3}, "other": ANY},
        "required": ["one", "many"],
    }
    tokenizer = make()
    read = json.loads(walk(compiled(schema, text, tokenizer), tokenizer, seed))
    assert read["one"] in spans(text)
    assert {value for value in read["many"] if value is not None} <= spans(text)
    assert read.get("other", "") in text


@settings(max_examples=30, deadline=None)
@given(texts.filter(str.strip), st.integers(0, 1000), st.sampled_from([0, 1, 3, 12]))
def test_a_budget_never_cuts_a_span(text: str, seed: int, more: int) -> None:
    schema = {"type": "object", "properties": {"a": {**SPAN, "minLength": 1}, "b": SPAN}, "required": ["a", "b"]}
    spec, tokenizer = constraints.json_schema(schema, text=text), tiny_tokenizer()
    answer, whole = written(spec, tokenizer, least(spec, tokenizer) + more, seed)
    assert whole
    read = json.loads(answer)
    assert read["a"] in spans(text) - {""}
    assert read["b"] in spans(text)


def test_what_a_vocabulary_cannot_write_is_in_no_span() -> None:
    constraint = compiled(SPAN, "a box of tea", lacking("x"))
    assert constraint.accepts('"of tea"')
    assert not constraint.accepts('"box"')
    assert not constraint.accepts('"bo"')
    assert not constraint.accepts('"a box of"')


class Owner(BaseModel):
    name: Annotated[str, Field(json_schema_extra={"x-span": True})]
    phone: Annotated[str | None, Field(json_schema_extra={"x-span": True})] = None
    age: int | None = None


class Dog(BaseModel):
    name: Annotated[str, Field(json_schema_extra={"x-span": True}, max_length=5)]
    owners: list[Owner]
    parents: list[Dog] = []
    tricks: dict[str, Annotated[str, Field(json_schema_extra={"x-span": True})]] = {}
    place: tuple[Annotated[str, Field(json_schema_extra={"x-span": True})], int] | None = None


ABOUT = "Rex sits. His owner is Ann, tel. 555-01. Bella is his mother."


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        ({"name": "Rex", "owners": []}, True),
        ({"name": "Max", "owners": []}, False),
        ({"name": "mother", "owners": []}, False),  # longer than five
        (
            {"name": "Rex", "owners": [{"name": "Ann", "phone": "555-01", "age": 3}, {"name": "Bella", "phone": None}]},
            True,
        ),
        ({"name": "Rex", "owners": [{"name": "Ann", "age": None}]}, True),
        ({"name": "Rex", "owners": [{"name": "Ann", "phone": "556"}]}, False),
        ({"name": "Rex", "owners": [{"phone": "555"}]}, False),
        ({"name": "Rex", "owners": [], "parents": [{"name": "Bella", "owners": []}]}, True),
        ({"name": "Rex", "owners": [], "parents": [{"name": "Lola", "owners": []}]}, False),
        ({"name": "Rex", "owners": [], "tricks": {"any key": "sits", "b": "tel"}}, True),
        ({"name": "Rex", "owners": [], "tricks": {"any key": "jumps"}}, False),
        ({"name": "Rex", "owners": [], "place": ["owner", 1]}, True),
        ({"name": "Rex", "owners": [], "place": ["owners", 1]}, False),
        ({"name": "Rex", "owners": [], "place": ["owner"]}, False),
        ({"name": "Rex", "owners": [], "place": None}, True),
        ({"name": "Rex", "owners": [], "more": 1}, False),
        ({"owners": [], "name": "Rex"}, False),
    ],
)
def test_spans_in_models(answer: dict[str, Any], taken: bool) -> None:
    assert compiled(Dog, ABOUT).accepts(json_text(answer)) is taken


@pytest.mark.parametrize(
    ("schema", "answer", "taken"),
    [
        ({"type": "array", "items": SPAN, "minItems": 2, "maxItems": 3}, ["a", "b"], True),
        ({"type": "array", "items": SPAN, "minItems": 2, "maxItems": 3}, ["a"], False),
        ({"type": "array", "items": SPAN, "minItems": 2, "maxItems": 3}, ["a"] * 4, False),
        ({"type": "array", "items": SPAN, "maxItems": 0}, [], True),
        ({"type": "array", "items": SPAN, "maxItems": 0}, ["a"], False),
        ({"type": "array", "prefixItems": [{"type": "integer"}, SPAN], "items": False}, [1, "b"], True),
        ({"type": "array", "prefixItems": [{"type": "integer"}, SPAN], "items": False}, [], True),
        ({"type": "array", "prefixItems": [{"type": "integer"}, SPAN], "items": False}, [1, "b", 2], False),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": SPAN, "minItems": 3}, [1, "a", "b"], True),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": SPAN, "minItems": 3}, [1, "a"], False),
        ({"type": ["string", "integer"], "x-span": True}, 12, True),
        ({"type": ["string", "integer"], "x-span": True}, "b", True),
        ({"type": ["string", "integer"], "x-span": True}, "z", False),
        ({"x-span": True}, {"k": ["anything", 1]}, True),
        ({"x-span": True}, "z", False),
        ({"allOf": [SPAN, {"maxLength": 2}]}, "b", True),
        ({"allOf": [SPAN, {"maxLength": 2}]}, "a b", False),
        ({"oneOf": [{"type": "integer"}, SPAN]}, "b", True),
        ({"properties": {'é"': SPAN}, "required": ['é"']}, {'é"': "b"}, True),
        ({"properties": {'é"': SPAN}, "required": ['é"']}, {'é"': "z"}, False),
        ({"properties": {"x-span": SPAN, "b": {"type": "string"}}}, {"x-span": "b", "b": "z"}, True),
        ({"properties": {"x-span": {"type": "string"}}}, {"x-span": "z"}, True),
        ({"properties": {"a": False, "b": SPAN}}, {"b": "a"}, True),
    ],
)
def test_spans_in_schemas(schema: Any, answer: Any, taken: bool) -> None:
    assert compiled(schema, "a b c").accepts(json_text(answer)) is taken


def test_other_keys_of_an_open_object_are_not_the_declared_ones() -> None:
    schema = {"type": "object", "properties": {"a": SPAN, "ab": {"type": "integer"}}, "required": ["a"]}
    constraint = constraints.compile(constraints.json_schema(schema, text="x", closed=False), tiny_tokenizer())
    assert constraint.accepts('{"a": "x", "ab": 1, "abc": [1], "": "z"}')
    assert constraint.accepts('{"a": "x", "b": "z"}')
    assert not constraint.accepts('{"a": "x", "a": "z"}')
    assert not constraint.accepts('{"a": "x", "ab": "z"}')
    assert not constraint.accepts('{"a": "z"}')


def test_separators_are_the_specs() -> None:
    schema = {"type": "object", "properties": {"a": SPAN, "b": {"type": "array", "items": SPAN}}}
    spec = constraints.json_schema(schema, text="x y", separators=(",", ":"))
    constraint = constraints.compile(spec, tiny_tokenizer())
    assert constraint.accepts('{"a":"x","b":["y","x"]}')
    assert not constraint.accepts('{"a": "x", "b": ["y", "x"]}')


def test_the_text_belongs_to_the_spec() -> None:
    one, other = (constraints.json_schema(SPAN, text=text) for text in ("a", "b"))
    assert one != other
    assert constraints.Spec.from_json(one.to_json()) == one
    assert constraints.compile(constraints.either(one, other), tiny_tokenizer()).accepts('"b"')


def test_what_is_left_to_validation_is_still_named() -> None:
    schema = {"type": "array", "items": SPAN, "uniqueItems": True}
    assert left_to_validation(constraints.json_schema(schema, text="a")) == ("uniqueItems at /",)
    assert compiled(schema, "a").left_to_validation == ("uniqueItems at /",)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"enum": ["b"], "x-span": True}}}, "'x-span' at /properties/a .* not beside enum"),
        ({"properties": {"a": {**SPAN, "pattern": "b"}}}, "not beside pattern"),
        ({"properties": {"a": {**SPAN, "format": "date"}}}, "not beside format"),
        ({"properties": {"a": {"type": "string", "x-span": "lines"}}}, 'true, "words" or "characters"'),
        ({"additionalProperties": SPAN, "minProperties": 1}, "minProperties"),
        ({"properties": {"a": SPAN, "b": SPAN}, "maxProperties": 1}, "parts that hold together"),
        ({"patternProperties": {"a": SPAN}}, "patternProperties"),
        ({**SPAN, "minLength": 100}, "no span of 100 or more characters"),
    ],
)
def test_what_cannot_be_combined_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(UnsupportedSchema, match=said):
        compiled(schema, "a b c")


def test_null_is_left_where_the_text_has_no_such_span() -> None:
    constraint = compiled({"anyOf": [{**SPAN, "minLength": 1}, {"type": "null"}]}, " ")
    assert constraint.accepts("null")
    assert not constraint.accepts('""')
    assert constraint.shortest == tiny_tokenizer().encode("null")


def test_without_a_text_it_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="no text to take spans from"):
        constraints.compile(constraints.json_schema(SPAN), tiny_tokenizer())
    with pytest.raises(UnsupportedSchema, match="no text to take spans from"):
        constraints.compile(constraints.marked("start: args", {}, {"args": SPAN}), tiny_tokenizer())


@pytest.mark.parametrize("text", [7, "half \ud800"])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(UnsupportedInput, match="text takes"):
        constraints.json_schema(SPAN, text=text)


def test_ten_thousand_characters_in_many_fields(embedded_tokenizer: Any) -> None:
    words = " ".join(f"word{number} and 你好 {number * 7919 % 1000}." for number in range(600))
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {f"field{number}": SPAN for number in range(12)}},
    }
    constraint = compiled(schema, words, embedded_tokenizer)
    assert len(words) > 10_000
    assert constraint.accepts(json_text([{"field0": words[: words.index(".") + 1], "field11": "word499 and 你"}] * 3))
    assert not constraint.accepts(json_text([{"field3": "word600"}]))


@pytest.fixture(scope="module")
def tiny() -> Iterator[Engine]:
    with Engine(tiny_model(max_position_embeddings=4096), tiny_tokenizer(), max_batch=16) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_of_an_engine_are_spans_each_of_its_own_text(tiny: Engine, temperature: float) -> None:
    """Many at once, with forced text and drafts, whatever a random model says and however few tokens it has."""
    about = [f"Person {number} said: \"it's {number * 31} o'clock\".\nThen she left\\stayed." for number in range(12)]
    schema = {
        "type": "object",
        "properties": {
            "who": {**SPAN, "minLength": 2},
            "what": {"type": "array", "items": SPAN},
            "maybe": {**SPAN, "type": ["string", "null"]},
        },
        "required": ["who", "what", "maybe"],
    }

    def ask(number: int) -> tuple[str, str]:
        spec = constraints.json_schema(schema, text=about[number])
        sampling = Sampling(temperature=temperature, seed=number, max_tokens=40 + 5 * number)
        reply = tiny.generate([{"role": "user", "content": about[number]}], spec=spec, sampling=sampling)
        return str(reply.message.content), reply.finish.reason

    with ThreadPoolExecutor(len(about)) as threads:
        together = list(threads.map(ask, range(len(about))))
    for text, (answer, reason) in zip(about, together, strict=True):
        read = json.loads(answer)
        assert reason == "stop"
        assert {read["who"], *read["what"], read["maybe"] or ""} <= spans(text)
    assert together[:3] == [ask(number) for number in range(3)]
