"""Prompt lookup: what followed the last ids where they stood before may well follow them again.

The text of an answer often repeats its prompt or itself: quotations, names, code, lists of records. No second model is
asked; the ids of prompt and answer are all there is (prompt lookup decoding, A. Saxena 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# The last ids that are compared, and occurrences of the last two that are looked at, the most recent ones.
_LONGEST = 8
_OCCURRENCES = 16


class Found(NamedTuple):
    """`ids` followed where the last `matched` ids stood before."""

    ids: list[int]
    matched: int


class PromptLookup:
    """The ids of one text, and where each pair of neighbours stands."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}

    def update(self, ids: Sequence[int], unchanged: int) -> None:
        """Take in what is new in `ids`, the whole text, of which so many first ids are as they were the last time.

        Takes time for the others alone.
        """
        known = self._ids
        while len(known) > unchanged:
            last = known.pop()
            if known:
                self._places[known[-1], last].pop()
        for place in range(len(known), len(ids)):
            if place:
                self._places.setdefault((ids[place - 1], ids[place]), []).append(place)
            known.append(ids[place])

    def find(self, last: Sequence[int], most: int) -> Found | None:
        """What followed the longest match for the ids `last`, of equal ones the most recent; None where two or more
        of them were not there before.

        Gives up to `most` ids. A match that reaches into its own continuation goes round.
        """
        if len(last) < 2:
            return None
        best, at = 1, 0
        for place in self._places.get((last[-2], last[-1]), [])[: -_OCCURRENCES - 1 : -1]:
            if place + 1 < len(self._ids) and (matched := self._matched(place, last)) > best:
                best, at = matched, place
        if best < 2:
            return None
        found = self._ids[at + 1 : at + 1 + most]
        round = len(found)
        while len(found) < most:
            found.append(found[-round])
        return Found(found, best)

    def _matched(self, place: int, last: Sequence[int]) -> int:
        """How many ids up to `place` are the end of `last`."""
        most = min(_LONGEST, len(last), place + 1)
        count = 2
        while count < most and self._ids[place - count] == last[-1 - count]:
            count += 1
        return count
