"""Which fields of an answer are right, and whether two ways to answer differ by more than chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import comb
from typing import Any

Place = tuple[str | int, ...]
Fields = Mapping[Place, bool]


def fields(right: Any, found: Any, place: Place = ()) -> Iterator[tuple[Place, bool]]:
    """Each field of an answer, and whether its value is equal to the right one.

    A field that is left out is null. A list of texts is one field; records in a list are compared by position. A record
    that is missing counts all its fields as wrong, and one too many as many fields as the first right one has, so that
    there are then more fields than in the right answer. An answer that is no object (None) has nothing right.
    """
    if isinstance(right, dict):
        if isinstance(found, dict):
            for key, value in right.items():
                yield from fields(value, found.get(key), (*place, key))
        else:
            yield from ((path, False) for path, _ in fields(right, right, place))
    elif isinstance(right, list) and isinstance(right[0], dict):
        records = found if isinstance(found, list) else []
        for number in range(max(len(right), len(records))):
            if number < len(right):
                yield from fields(right[number], records[number] if number < len(records) else None, (*place, number))
            else:
                yield from fields(right[0], None, (*place, number))
    else:
        yield place, _same(right, found)


def _same(right: Any, found: Any) -> bool:
    """Equal as JSON: true is not 1, and 2.0 is 2."""
    return isinstance(right, bool) == isinstance(found, bool) and bool(right == found)


def changes(before: Iterable[Fields], after: Iterable[Fields]) -> tuple[int, int]:
    """How many fields went from wrong to right, and from right to wrong. Where one answer lacks a field that the other
    has too much, it is right there."""
    gained = lost = 0
    for one, other in zip(before, after, strict=True):
        for place in {**one, **other}:
            was, now = one.get(place, True), other.get(place, True)
            gained += now and not was
            lost += was and not now
    return gained, lost


def sign_test(gained: int, lost: int) -> float:
    """The chance of a difference at least this large, both ways, if each change were the toss of a coin.

    Fields of one answer tend to change together, so the true chance is larger.
    """
    changed = gained + lost
    tail = sum(comb(changed, fewer) for fewer in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**changed)
