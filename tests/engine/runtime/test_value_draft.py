"""Drafts of JSON values: what is copied, what ends it, and what the grammar puts behind."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints.constraint import ConstraintState
from chatlocal.engine.runtime.source_text import SourceText
from chatlocal.engine.runtime.value_draft import value_draft
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
DOG = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "foods": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "foods"],
}
SOURCE = SourceText(b"The dog is called Harry Brown, he is 17 and eats chicken.")


def state(begun: str, schema: Any = DOG) -> ConstraintState:
    """The place behind a text, written in the tokenizer's ids."""
    compiled = constraints.compile(
        constraints.json_schema(schema), TOKENIZER, vocab_size=len(TOKENIZER), end_ids=[TOKENIZER.eos_token_id]
    )
    made = compiled.start()
    for id in TOKENIZER.encode(begun, add_special_tokens=False):
        made.advance(id)
    return made


@pytest.mark.parametrize(
    ("begun", "draft"),
    [
        ('{"name": "H', 'arry Brown", "age": '),
        ('{"name": "Harry', ' Brown", "age": '),
        ('{"name": "Harry Brown", "age": 1', '7, "foods": ['),
        ('{"name": "Ha", "age": 3, "foods": ["chi', 'cken", "'),
    ],
)
def test_a_value_is_copied_and_the_way_to_the_next_one_is_put_behind_it(begun: str, draft: str) -> None:
    made = value_draft(state(begun), SOURCE, [])
    assert made is not None
    ids, kinds = made
    assert TOKENIZER.decode(ids) == draft
    assert len(kinds) == len(ids)


def test_all_of_it_may_follow_and_the_state_stays_where_it_was() -> None:
    begun = state('{"name": "H')
    before, mask = list(begun.ids), begun.mask()
    made = value_draft(begun, SOURCE, [])
    assert made is not None
    assert list(begun.ids) == before
    assert bool((begun.mask() == mask).all())
    for id in made[0]:
        begun.advance(id)


def test_what_the_grammar_forces_is_no_guess_of_its_own() -> None:
    made = value_draft(state('{"name": "Harry'), SOURCE, [])
    assert made is not None
    ids, kinds = made
    texts = [TOKENIZER.decode([id]) for id in ids]
    end = next(place for place, text in enumerate(texts) if '"' in text)
    assert kinds[end] == "end of capital"
    assert all(kind is None for kind in kinds[end + 1 :])
    assert all(kind is not None for kind in kinds[: end + 1])


def test_a_value_that_the_source_does_not_have_is_offered_an_end() -> None:
    made = value_draft(state('{"name": "Zz'), SOURCE, [])
    assert made is not None
    assert TOKENIZER.decode(made[0]) == '", "age": '


def test_behind_a_whole_value_another_one_is_guessed() -> None:
    schema = {"type": "array", "items": {"type": "boolean"}}
    made = value_draft(state("[true", schema), SOURCE, [])
    assert made is not None
    assert made[1][0] == "one more"


def test_nothing_is_offered_where_a_value_is_still_to_begin() -> None:
    assert value_draft(state('{"name": "Harry Brown", "age": '), SOURCE, []) is None
    assert value_draft(state(""), SOURCE, []) is None
