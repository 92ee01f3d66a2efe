"""JSON texts as far as they were written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.partial_json import PartialJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def value_of(text: str) -> Any:
    growing = PartialJson()
    growing.feed(text)
    return growing.value()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 12', {}),
        ('{"a": 12,', {"a": 12}),
        ('{"a": -', {}),
        ('{"a": 1.5e', {}),
        ('{"a": 1.5e3}', {"a": 1500.0}),
        ('{"a": "12', {"a": "12"}),
        ('{"a": "say \\"1', {"a": 'say "1'}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": tru', {}),
        ('{"a": true}', {"a": True}),
        ('{"a', {}),
        ('{"a":', {}),
        ("[1, [2, 3", [1, [2]]),
        ('["brow', ["brow"]),
    ],
)
def test_what_there_is(text: str, value: Any) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize("text", ["", " ", "12", "-", "tr"])
def test_nothing_yet(text: str) -> None:
    with pytest.raises(ValueError, match="EOF"):
        value_of(text)


def grows(before: Any, after: Any) -> bool:
    """Whether a partial value can become another one: nothing that was there is taken back but the end of a string."""
    match before, after:
        case dict(), dict():
            return all(key in after and grows(value, after[key]) for key, value in before.items())
        case list(), list():
            return len(before) <= len(after) and all(map(grows, before, after))
        case str(), str():
            return after.startswith(before)
        case _:
            return bool(before == after)


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=4), st.booleans())
def test_values_grow_and_end_as_the_text_does(value: dict[str, Any], ascii: bool) -> None:
    growing = PartialJson()
    last: Any = {}
    for character in json.dumps(value, ensure_ascii=ascii):
        growing.feed(character)
        try:
            now = growing.value()
        except ValueError:  # the first half of a surrogate pair, say
            continue
        assert grows(last, now)
        last = now
    assert last == value
