"""Recursive types under a model that opens whatever it can: the text comes back in time for its readers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints.nesting import MAX_OPEN
from tests.engine.constraints.pydantic_models import TYPES
from tests.engine.constraints.walking import spelled
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
TEXTS = spelled(TOKENIZER)

# How each begins, and what it goes on with for ever.
OPENING: dict[str, tuple[Any, str, str]] = {
    "Component": (TYPES["Component"], "", '{"type": "div", "label": "", "children": ['),
    "LinkedList": (TYPES["LinkedList"], "", '{"value": 1, "next": '),
    "BinaryTree": (TYPES["BinaryTree"], "", '{"left": '),
    "Product": (TYPES["Expression"], "", '{"left": '),
    "Sum": (TYPES["Expression"], "", '{"add": ['),
    "Folder": (TYPES["Folder"], "", '{"name": "a", "parts": ['),
    "array": (Any, "", "["),
    "object": ({"type": "object"}, "", '{"": '),
    "inside": (TYPES["Open"], '{"anything": ', "["),
    "not empty": ({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "minItems": 2}, "", "["),
}


def depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, (dict, list)) + max(map(depth, children), default=0)


def opened(kind: Any, begin: str, again: str) -> str:
    """The text of a model that only wants to open more, and where it may not takes the way out."""
    state = constraints.compile(constraints.json_schema(kind), TOKENIZER).start()
    text = b""
    wanted = (begin + again * 300).encode()
    while wanted.startswith(text):
        left = wanted[len(text) :]
        allowed = state.mask().nonzero().flatten().tolist()
        fitting = [id for id in allowed if TEXTS[id] and left.startswith(TEXTS[id])]
        id = max(fitting or allowed, key=lambda id: len(TEXTS[id]))
        state.advance(id)
        text += TEXTS[id]
    way = state.ending(4096)
    assert way is not None
    return (text + b"".join(TEXTS[id] for id in way)).decode()


@pytest.mark.parametrize("name", OPENING)
def test_a_model_that_only_opens_is_brought_back(name: str) -> None:
    text = opened(*OPENING[name])
    assert MAX_OPEN <= depth(json.loads(text)) < MAX_OPEN + 10
    constraints.validation.check(OPENING[name][0], text)


def test_the_limit_ends_with_the_depth() -> None:
    constraint = constraints.compile(constraints.json_schema(list[Any]), TOKENIZER)
    opening, closing, comma = (TOKENIZER.convert_tokens_to_ids(mark) for mark in "[],")
    state = constraint.start()
    for _ in range(MAX_OPEN - 1):
        state.advance(opening)
    free = state.mask()
    assert free[opening]
    state.advance(opening)
    assert state.mask().nonzero().flatten().tolist() == [closing]
    state.rollback(1)
    assert (state.mask() == free).all()
    state.advance(opening)
    state.advance(closing)
    assert state.mask()[comma]


def test_a_schema_that_is_deep_by_itself_is_followed_to_its_ground() -> None:
    names = [f"level{number}" for number in range(MAX_OPEN + 20)]
    levels = {
        name: {"type": "array", "items": {"$ref": f"#/$defs/{below}"}, "minItems": 1}
        for name, below in zip(names, [*names[1:], "ground"], strict=True)
    }
    schema = {"$ref": "#/$defs/level0", "$defs": {**levels, "ground": {"type": "boolean"}}}
    text = opened(schema, "", "[")
    assert depth(json.loads(text)) == MAX_OPEN + 20
