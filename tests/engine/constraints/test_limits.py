"""Strings and lists without a maximum come to an end by themselves; what a schema demands goes first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Limits, Spec
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import UnsupportedInput
from tests.engine.constraints.vocabularies import sentencepiece
from tests.engine.constraints.walking import spelled
from tests.scripted import ScriptedBackend
from tests.tiny import tiny_tokenizer

STRINGS = {"type": "array", "items": {"type": "string"}}
PEOPLE = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}}


def written(spec: Spec, wanted: str, tokenizer: Any = None) -> str:
    """What comes of a writer that goes on with `wanted` for as long as it is let, and then ends as soon as it can."""
    tokenizer = tokenizer or tiny_tokenizer()
    texts, rest, text = spelled(tokenizer), wanted.encode(), b""
    state = constraints.compile(spec, tokenizer).start()
    while not state.done:
        mask = state.mask()
        fitting = [id for id in mask.nonzero().flatten().tolist() if texts[id] and rest.startswith(texts[id])]
        if fitting:
            id = max(fitting, key=lambda one: len(texts[one]))
            rest = rest[len(texts[id]) :]
        else:
            rest = b""
            way = [one for one in (state.ending(2000) or ()) if mask[one]]
            if state.may_end or not way:
                break
            id = way[0]
        state.advance(id)
        text += texts[id]
    return text.decode()


@pytest.mark.parametrize("make", [tiny_tokenizer, sentencepiece], ids=["byte level", "sentencepiece"])
def test_a_string_is_ended_at_its_limit(make: Any) -> None:
    letters = "".join(chr(97 + (place * 7 + place * place) % 26) for place in range(200))
    text = written(constraints.json_schema({"type": "string"}, limits=Limits(characters=50)), f'"{letters}"', make())
    assert 50 <= len(json.loads(text)) <= 60  # the last token may reach over it
    assert f'"{letters}'.startswith(text.rstrip('"'))


def test_characters_are_counted_and_not_bytes() -> None:
    text = written(
        constraints.json_schema({"type": "string"}, limits=Limits(characters=30, repeats=None)), '"' + "漢字" * 40
    )
    assert json.loads(text) == "漢字" * 15


@pytest.mark.parametrize("items", [1, 2, 7])
def test_a_list_is_ended_at_its_limit(items: int) -> None:
    wanted = json.dumps([f"item {number}" for number in range(20)])
    assert json.loads(written(constraints.json_schema(STRINGS, limits=Limits(items=items)), wanted)) == [
        f"item {number}" for number in range(items)
    ]


def test_every_list_has_its_own_limit() -> None:
    schema = {"type": "array", "items": STRINGS}
    wanted = json.dumps([[f"{row} {column}" for column in range(5)] for row in range(3)])
    text = written(constraints.json_schema(schema, limits=Limits(items=3)), wanted)
    assert json.loads(text) == [["0 0", "0 1", "0 2"]]  # the writer is ended with its first list
    text = written(constraints.json_schema(schema, limits=Limits(items=5)), wanted)
    assert json.loads(text) == json.loads(wanted)


def test_commas_in_strings_and_objects_are_none_of_a_list() -> None:
    wanted = json.dumps([{"n": 'a, b, c, [d], "e", f'}, {"n": "g"}])
    assert written(constraints.json_schema(PEOPLE, limits=Limits(items=2)), wanted) == wanted


def test_a_number_is_ended_too() -> None:
    spec = constraints.json_schema({"type": "array", "items": {"type": "integer"}}, limits=Limits())
    (number,) = json.loads(written(spec, "[" + "1234567890" * 20))
    assert 40 <= len(str(number)) <= 45
    low = {"type": "integer", "minimum": 10**18 // 2}
    assert json.loads(written(constraints.json_schema(low, limits=Limits()), str(10**18))) == 10**18


def test_equal_items_end_a_list() -> None:
    wanted = json.dumps([{"n": "Ann"}, *[{"n": "Bob"}] * 30])
    assert (
        json.loads(written(constraints.json_schema(PEOPLE, limits=Limits(repeats=3)), wanted)) == json.loads(wanted)[:4]
    )
    different = json.dumps([{"n": "Ann"}, {"n": "Bob"}] * 10)
    assert written(constraints.json_schema(PEOPLE, limits=Limits(repeats=3)), different) == different


def test_equal_numbers_do_not() -> None:
    zeros = json.dumps([0] * 50)
    assert (
        written(constraints.json_schema({"type": "array", "items": {"type": "integer"}}, limits=Limits()), zeros)
        == zeros
    )


def test_a_string_that_goes_round_in_circles_is_ended() -> None:
    endless = '"It was' + " a very, very long day" * 40
    text = json.loads(written(constraints.json_schema({"type": "string"}, limits=Limits()), endless))
    assert endless[1:].startswith(text)
    assert text.count(" a very, very long day") in (4, 5)
    dashes = json.dumps("-" * 59)
    assert written(constraints.json_schema({"type": "string"}, limits=Limits()), dashes) == dashes


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string", "minLength": 80}, "x1y2z3w4" * 10),
        ({"type": "string", "maxLength": 80}, "".join(chr(97 + place % 23) for place in range(80))),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 9}, list(range(9))),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 9}, list(range(9))),
        ({"type": "string", "pattern": "^(ab){40}$"}, "ab" * 40),
    ],
    ids=lambda value: next(iter(value.keys() - {"type", "items"}), "") if isinstance(value, dict) else "",
)
def test_what_the_schema_says_goes_first(schema: Any, wanted: Any) -> None:
    limits = Limits(characters=10, items=3, repeats=None)
    assert json.loads(written(constraints.json_schema(schema, limits=limits), json.dumps(wanted))) == wanted


def test_no_limits_at_all() -> None:
    wanted = json.dumps(["same"] * 150 + ["y" * 3000])
    assert written(constraints.json_schema(STRINGS, limits=Limits(None, None, None)), wanted) == wanted


def test_longer_texts_are_accepted_all_the_same() -> None:
    constraint = constraints.compile(constraints.json_schema(STRINGS, limits=Limits(items=2)), tiny_tokenizer())
    assert constraint.accepts('["a", "b", "c"]')


def test_they_are_part_of_the_spec() -> None:
    spec = constraints.json_schema(STRINGS, limits=Limits(items=2))
    assert Spec.from_json(spec.to_json()) == spec
    assert hash(spec) != hash(constraints.json_schema(STRINGS))


@pytest.mark.parametrize("wrong", [{"characters": 0}, {"items": -1}, {"repeats": 1}, {"items": 2.5}, {"items": True}])
def test_what_is_no_limit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedInput, match=next(iter(wrong))):
        Limits(**wrong)


def test_limits_are_limits() -> None:
    with pytest.raises(UnsupportedInput, match=r"Limits\(characters"):
        constraints.json_schema(STRINGS, limits=20)  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [None, Limits(items=7)], ids=["default", "own"])
def test_the_engine_has_limits_by_itself(own: Limits | None) -> None:
    backend = ScriptedBackend(tiny_tokenizer().encode("[]", add_special_tokens=False))
    engine = Engine(None, tiny_tokenizer(), backend=backend)
    engine.generate([{"role": "user", "content": "?"}], spec=constraints.json_schema(STRINGS, limits=own))
    assert backend.requests[0].constraint_spec.limits == (own or Limits())
