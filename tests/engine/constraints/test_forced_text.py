"""Text that must come next: which ids it is written with, what of it is left open, and that the state follows."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import ConstraintState, Spec
from chatlocal.engine.constraints.forced_text import Forced, advance_forced, take_back
from tests.engine.constraints.vocabularies import sentencepiece
from tests.engine.constraints.walking import spelled
from tests.tiny import tiny_tokenizer

CHARACTER = constraints.json_schema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
)


def at(spec: Spec, tokenizer: Any, *texts: str) -> ConstraintState:
    """The state behind these texts, each written as the tokenizer writes it by itself."""
    state = constraints.compile(spec, tokenizer).start()
    for text in texts:
        for id in tokenizer.encode(text, add_special_tokens=False):
            state.advance(id)
    return state


def words(tokenizer: Any, ids: tuple[int, ...]) -> list[str]:
    return [tokenizer.decode([id]) for id in ids]


def seen(tokenizer: Any, forced: Forced | None) -> tuple[list[str], list[str], list[str]] | None:
    if forced is None:
        return None
    return words(tokenizer, forced.replaced), words(tokenizer, forced.ids), words(tokenizer, forced.likely)


def test_an_answer_begins_with_what_it_must(embedded_tokenizer: Any) -> None:
    state = at(CHARACTER, embedded_tokenizer)
    assert seen(embedded_tokenizer, advance_forced(state)) == ([], ['{"', "name", '":'], [' "'])
    # What is left of it is not certain: ` ""` is one token.
    assert seen(embedded_tokenizer, advance_forced(state)) == ([], [], [' "'])


def test_a_quote_is_written_anew_with_the_comma_behind_it(embedded_tokenizer: Any) -> None:
    state = at(CHARACTER, embedded_tokenizer, '{"name":', ' "', "Harry", '"')
    assert seen(embedded_tokenizer, advance_forced(state)) == (['"'], ['",', ' "', "age", '":'], [" "])


def test_where_the_model_has_a_choice_nothing_is_written(embedded_tokenizer: Any) -> None:
    state = at(CHARACTER, embedded_tokenizer, '{"name":', ' "', "Har")
    before = list(state.ids)
    assert advance_forced(state) is None
    assert list(state.ids) == before


def test_all_of_it_is_written_where_the_text_ends(embedded_tokenizer: Any) -> None:
    spec = constraints.choice(["the one answer there is", "another one"])
    state = at(spec, embedded_tokenizer, "another")
    assert seen(embedded_tokenizer, advance_forced(state)) == ([], [" one"], [])
    assert state.done


def test_only_so_many_ids_are_written_anew(embedded_tokenizer: Any) -> None:
    state = at(CHARACTER, embedded_tokenizer, '{"name":', ' "', "Harry", '"')
    forced = advance_forced(state, replaceable=0)
    assert forced is not None
    assert forced.replaced == ()
    assert "".join(words(embedded_tokenizer, forced.ids)) == ', "age":'


def test_taking_back_is_as_if_nothing_had_been_written(embedded_tokenizer: Any) -> None:
    state = at(CHARACTER, embedded_tokenizer, '{"name":', ' "', "Harry", '"')
    before, mask = list(state.ids), state.mask()
    forced = advance_forced(state)
    assert forced is not None
    take_back(state, forced)
    assert list(state.ids) == before
    assert state.mask().equal(mask)


def test_half_a_character_is_left_to_the_model(embedded_tokenizer: Any) -> None:
    """Two emoji with the same first three bytes: the last byte is the choice."""
    state = at(constraints.choice(["a😀", "a😁"]), embedded_tokenizer)
    forced = advance_forced(state)
    assert forced is None or "".join(words(embedded_tokenizer, forced.ids)) in ("", "a")


SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"名前": {"type": "string"}, 'a "quoted" key': {"enum": [1, "zwei", None, "漢字"]}},
    },
    {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    {"anyOf": [{"const": "a long text that is fixed"}, {"type": "object", "properties": {"k": {"const": "yes"}}}]},
    {
        "type": "object",
        "properties": {"date": {"type": "string", "format": "date"}, "id": {"type": "string", "format": "uuid"}},
        "required": ["date", "id"],
    },
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@pytest.mark.parametrize("make", [tiny_tokenizer, sentencepiece], ids=["byte level", "sentencepiece"])
def test_texts_with_forced_parts_follow_the_grammar(number: int, make: Any) -> None:
    """Random choices, and forced text wherever there is some: the ids spell a whole valid text in the end."""
    tokenizer = make()
    texts = spelled(tokenizer)
    constraint = constraints.compile(constraints.json_schema(SCHEMAS[number]), tokenizer)
    for seed in range(12):
        rng, state, ids = random.Random(seed), constraint.start(), []
        while True:
            forced = advance_forced(state)
            if forced is not None:
                assert forced.replaced == tuple(ids[len(ids) - len(forced.replaced) :])
                ids[len(ids) - len(forced.replaced) :] = forced.ids
                old, new = (b"".join(texts[id] for id in part) for part in (forced.replaced, forced.ids))
                assert new.startswith(old)
            assert ids == list(state.ids)
            if state.done or (state.may_end and rng.random() < 0.5):
                break
            way = state.ending(400) if len(ids) > 150 else None
            id = way[0] if way else rng.choice((state.mask() & ~ends(state)).nonzero().flatten().tolist() or [-1])
            if id < 0:
                break
            state.advance(id)
            ids.append(id)
        text = b"".join(texts[id] for id in ids).decode()
        assert constraint.accepts(text), text
        json.loads(text)


def ends(state: ConstraintState) -> Any:
    mask = state.mask()
    mask[:] = False
    mask[list(state.end_ids)] = True
    return mask


def test_steps_to_finish_counts_the_ids_to_an_end(embedded_tokenizer: Any) -> None:
    state = at(CHARACTER, embedded_tokenizer)
    whole = len(embedded_tokenizer.encode('{"name": "", "age": 0}', add_special_tokens=False))
    assert state.steps_to_finish in (whole, whole + 1)
    state = at(CHARACTER, embedded_tokenizer, '{"name": "A", "age": 3')
    assert state.steps_to_finish == 1
    state = at(CHARACTER, embedded_tokenizer, '{"name": "A", "age": 3}')
    assert state.steps_to_finish == 0
