"""Thinking that may have so many tokens: whatever is chosen, it is closed in time and the answer behind it is whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Opening, Spec, TokenBudget
from chatlocal.engine.errors import UnsupportedInput
from tests.engine.constraints.vocabularies import sentencepiece, with_added
from tests.engine.constraints.walking import spelled

OPEN, CLOSE = b"<think>", b"</think>"
MARKS = ("<think>", "</think>")
FORM = constraints.json_schema(
    {
        "type": "object",
        "properties": {"reasoning": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["reasoning", "n"],
    }
)
CALL = constraints.marked('start: "\\n" args close', {"close": "</tool_call>"}, {"args": {"const": [1]}})
MAKERS = {
    "tokens": lambda: with_added("<tool_call>", "</tool_call>", *MARKS),
    "spelled": with_added,
    "sentencepiece": sentencepiece,
}
# What stands behind the thinking, and whether random choices bring it to an end within 120 tokens.
ANSWERS = {"form": (FORM, True), "text": (constraints.free_text(), False), "call": (constraints.after("#", CALL), True)}


def thinking(spec: Spec, limit: int | None, *, open: bool = True) -> Spec:
    return constraints.thinking(spec, *MARKS, open=open, limit=limit)


def ids_of(spec: Spec, tokenizer: Any, seed: int, first: str = "", budget: int = 120) -> tuple[list[int], bool]:
    """Ids chosen at random within a budget behind given first ones, and whether they are a whole text."""
    rng = random.Random(seed)
    watched = TokenBudget(constraints.compile(spec, tokenizer), budget)
    state = watched.state
    given = [tokenizer.convert_tokens_to_ids(first)] if first else []
    ids: list[int] = []
    while len(ids) < budget and not state.done:
        allowed = state.mask().nonzero().flatten().tolist()
        id = watched.within_reach(given.pop() if given else rng.choice(allowed))
        assert id in allowed
        if id in state.end_ids:
            break
        state.advance(id)
        ids.append(id)
    return ids, state.may_end


def thought_of(ids: list[int], tokenizer: Any) -> int:
    """How many ids stand before the mark that closes the thought, the one that opens it apart."""
    texts = spelled(tokenizer)
    whole = b"".join(texts[id] for id in ids)
    start = len(OPEN) if whole.startswith(OPEN) else 0
    closing = whole.index(CLOSE)
    places = [sum(len(texts[id]) for id in ids[:count]) for count in range(len(ids))]
    return sum(start <= place < closing for place in places)


@pytest.mark.parametrize("vocabulary", MAKERS)
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("limit", [0, 1, 2, 7, 30])
def test_it_is_closed_in_time(vocabulary: str, answer: str, limit: int) -> None:
    tokenizer = MAKERS[vocabulary]()
    spec, ends = ANSWERS[answer]
    counts = []
    for seed in range(6):
        ids, whole = ids_of(thinking(spec, limit), tokenizer, seed)
        assert whole or not ends
        counts.append(thought_of(ids, tokenizer))
    assert max(counts) == limit  # what random choices use up


@pytest.mark.parametrize("answer", ["form", "text"])
def test_it_counts_from_the_mark_that_opens_it(answer: str) -> None:
    tokenizer = MAKERS["tokens"]()
    for limit in (0, 1, 9):
        counts = []
        for seed in range(6):
            ids, whole = ids_of(thinking(ANSWERS[answer][0], limit, open=False), tokenizer, seed, "<think>")
            assert whole
            counts.append(thought_of(ids, tokenizer))
        assert max(counts) == limit


@pytest.mark.parametrize("before", ["", " ", "\n\n"])
def test_a_thought_in_free_text_may_have_white_space_before_it_and_a_spelled_mark(before: str) -> None:
    tokenizer = with_added("</think>")
    state = constraints.compile(thinking(constraints.free_text(), 0, open=False), tokenizer).start()
    for id in tokenizer.encode(f"{before}<think>", add_special_tokens=False):
        assert state.mask()[id]
        state.advance(id)
    assert state.mask().nonzero().flatten().tolist() == [tokenizer.convert_tokens_to_ids("</think>")]


def test_free_text_without_a_thought_is_free() -> None:
    tokenizer = MAKERS["tokens"]()
    state = constraints.compile(thinking(constraints.free_text(), 0, open=False), tokenizer).start()
    for id in tokenizer.encode("So <think>we go on", add_special_tokens=False):
        assert state.may_end
        assert state.mask()[id]
        state.advance(id)


def test_what_opens_calls_still_does() -> None:
    tokenizer = MAKERS["tokens"]()
    spec = thinking(constraints.free_text(Opening("<tool_call>", CALL)), 3, open=False)
    state = constraints.compile(spec, tokenizer).start()
    for id in tokenizer.encode("<think>a</think>So <tool_call>", add_special_tokens=False):
        assert state.mask()[id]
        state.advance(id)
    assert state.mask().nonzero().flatten().tolist() == tokenizer.encode("\n", add_special_tokens=False)


def test_a_mark_that_was_begun_is_gone_on_with() -> None:
    tokenizer = with_added()
    rest = tokenizer.encode("think>", add_special_tokens=False)
    state = constraints.compile(thinking(FORM, 2), tokenizer).start()
    for id in tokenizer.encode("</", add_special_tokens=False):
        state.advance(id)
    assert state.mask().nonzero().flatten().tolist() == rest[:1]


def test_nothing_else_is_taken_when_it_is_used_up() -> None:
    tokenizer = MAKERS["tokens"]()
    state = constraints.compile(thinking(FORM, 1), tokenizer).start()
    (one,) = tokenizer.encode("a", add_special_tokens=False)
    state.advance(one)
    with pytest.raises(UnsupportedInput, match="cannot follow"):
        state.advance(one)


@pytest.mark.parametrize("spec", [FORM, constraints.free_text(), constraints.free_text(Opening("#", CALL))])
@pytest.mark.parametrize("open", [True, False])
def test_rolling_back_and_copies_keep_count(spec: Spec, open: bool) -> None:
    tokenizer = MAKERS["tokens"]()
    constraint = constraints.compile(thinking(spec, 4, open=open), tokenizer)
    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in MARKS]
    for seed in range(20):
        rng = random.Random(seed)
        state = constraint.start()
        masks = [state.mask()]
        while not state.done and len(masks) < 20:
            allowed = masks[-1].nonzero().flatten().tolist()
            likely = [id for id in marks if id in allowed and rng.random() < 0.3]
            state.advance(rng.choice(likely or [id for id in allowed if id not in state.end_ids] or allowed))
            masks.append(torch.zeros_like(masks[0]) if state.done else state.mask())
            if not state.done:
                assert torch.equal(state.copy().mask(), masks[-1])
        back = rng.randrange(1, len(masks))
        state.rollback(back)
        assert torch.equal(state.mask(), masks[-1 - back])


def test_limits_are_written_down() -> None:
    spec = thinking(FORM, 5)
    assert Spec.from_json(spec.to_json()) == spec != thinking(FORM, 6)
