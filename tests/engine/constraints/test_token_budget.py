"""Answers that must end within so many tokens: whatever is chosen on the way, they come to a whole end."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Opening, Spec
from chatlocal.engine.constraints.token_budget import TokenBudget
from chatlocal.engine.errors import BudgetTooSmall
from tests.engine.constraints.vocabularies import sentencepiece, with_added
from tests.engine.constraints.walking import spelled
from tests.tiny import tiny_tokenizer

NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["value", "next"],
}
# With the shortest document of each.
SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"type": "object", "properties": {}}, "{}"),
    "flat": (
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a", "b"]},
        '{"a": "", "b": 0}',
    ),
    "optional": ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, "{}"),
    "linked list": (NODE, '{"value": 0, "next": null}'),
    "array": ({"type": "array", "items": NODE}, "[]"),
    "at least two": ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, "[true, true]"),
    "a form": ({"type": "string", "pattern": "^INTERVAL_[A-Z]+[0-9]{2}$"}, '"INTERVAL_A00"'),
    "bounds": ({"type": "integer", "minimum": 1000, "maximum": 2000}, "1000"),
    "choice": ({"enum": ["a long one of them", "short"]}, '"short"'),
    "free": ({"type": "object"}, "{}"),
    "at least five": ({"type": "string", "minLength": 5}, '"aaaaa"'),
}
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
CALL = constraints.marked('start: "\\n" args close', {"close": "</tool_call>"}, {"args": SCHEMAS["flat"][0]})


def written(spec: Spec, tokenizer: Any, budget: int, seed: int) -> tuple[str, bool]:
    """A text of random choices within a budget, and whether it is a whole one."""
    rng = random.Random(seed)
    texts = spelled(tokenizer)
    watched = TokenBudget(constraints.compile(spec, tokenizer), budget)
    state = watched.state
    text = b""
    for _ in range(budget):
        id = watched.within_reach(rng.choice(state.mask().nonzero().flatten().tolist()))
        if id in state.end_ids:
            break
        state.advance(id)
        text += texts[id]
        if state.done:
            break
    return text.decode(errors="replace"), state.may_end


def least(spec: Spec, tokenizer: Any) -> int:
    way = constraints.compile(spec, tokenizer).shortest
    assert way is not None
    return len(way)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("make", [tiny_tokenizer, sentencepiece], ids=["byte level", "sentencepiece"])
def test_every_choice_comes_to_a_whole_end(name: str, make: Any) -> None:
    schema, _ = SCHEMAS[name]
    spec, tokenizer = constraints.json_schema(schema), make()
    constraint = constraints.compile(spec, tokenizer)
    for more in (0, 1, 2, 5, 20):
        for seed in range(8):
            text, whole = written(spec, tokenizer, least(spec, tokenizer) + more, seed)
            assert whole, text
            assert constraint.accepts(text)
            json.loads(text)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_way_to_the_end_is_short(name: str, embedded_tokenizer: Any) -> None:
    schema, shortest = SCHEMAS[name]
    known = len(embedded_tokenizer.encode(shortest, add_special_tokens=False))
    assert least(constraints.json_schema(schema), embedded_tokenizer) <= known + 1


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in ("empty", "optional", "array", "free")])
def test_below_the_least_it_is_refused_with_the_number(name: str) -> None:
    spec, tokenizer = constraints.json_schema(SCHEMAS[name][0]), tiny_tokenizer()
    needed = least(spec, tokenizer)
    with pytest.raises(BudgetTooSmall, match=f"has {needed} tokens and there is room for {needed - 1}"):
        TokenBudget(constraints.compile(spec, tokenizer), needed - 1)


@pytest.mark.parametrize(
    "spec",
    [
        constraints.choice(["yes", "no, not at all"]),
        constraints.regex(r"[a-z]{3,40}-[0-9]{2,}!"),
        constraints.grammar('start: "(" start? ")"'),
        constraints.grammar('start: term (" + " term)*\nterm: /[0-9]+/ | "(" start ")"'),
        constraints.grammar('start: "<a>" start start "</a>" | "x"'),
        constraints.either(constraints.choice(["never"]), constraints.json_schema(NODE)),
        constraints.after("</think>", constraints.json_schema(NODE)),
        constraints.thinking(constraints.json_schema(NODE), "<think>", "</think>", open=True),
        constraints.thinking(constraints.json_schema(NODE), "<think>", "</think>", open=False),
    ],
    ids=lambda spec: spec.kind,
)
@pytest.mark.parametrize("tags", [(), TAGS], ids=["spelled", "tokens"])
def test_other_kinds(spec: Spec, tags: tuple[str, ...]) -> None:
    tokenizer = with_added(*tags)
    for more in (0, 1, 7, 30):
        for seed in range(5):
            assert written(spec, tokenizer, least(spec, tokenizer) + more, seed)[1]


def test_a_call_that_begins_in_free_text_is_not_cut() -> None:
    tokenizer = with_added(*TAGS)
    begin = tokenizer.convert_tokens_to_ids("<tool_call>")
    spec = constraints.free_text(Opening("<tool_call>", CALL))
    constraint = constraints.compile(spec, tokenizer)
    begun = constraint.start()
    begun.advance(begin)
    needed = len(begun.ending(1000) or ())
    assert needed > 9
    for room, begins in ((needed, True), (needed - 1, False)):
        watched = TokenBudget(constraint, 1 + room)
        assert (watched.within_reach(begin) == begin) is begins
    for seed in range(20):
        assert written(spec, tokenizer, 12 + seed, seed)[1]


def test_free_text_goes_on_as_long_as_there_is_room() -> None:
    tokenizer = with_added(*TAGS)
    watched = TokenBudget(constraints.compile(constraints.free_text(Opening("<tool_call>", CALL)), tokenizer), 5)
    for id in tokenizer.encode("user system", add_special_tokens=False)[:5]:
        assert watched.within_reach(id) == id
        watched.state.advance(id)
