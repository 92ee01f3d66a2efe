"""Where the records of a list stand in a text, and for how many it has room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chatlocal.extractors.text_offers import Offer, date_offers, number_offers

# In nats, fitted on the first half of benchmarks/data/records_labelled.jsonl: what room for another record says for
# one, and what is said against an item that leaves a record out or holds one of the numbers.
_ROOM = 3.0
_MISSED = 1.5
_HOLDS = 4.0
_UNBOUNDED = 1000

# What stands between two records, the strongest first.
_MARKS = (
    re.compile(r"\n"),
    re.compile(r"[.。!?！？](?=\s|$|[^\d\s])"),
    re.compile(r"[;；]"),
    re.compile(r"[,，、]|\band\b|和"),
)


class Needs:
    """How many numbers and dates each record must have: so many records a part of the text has room for."""

    def __init__(self, text: str, numbers: int, dates: int) -> None:
        days = {(each.start, each.end) for each in date_offers(text)} if dates or numbers else set()
        figures = {(each.start, each.end) for each in number_offers(text, whole=False)} if numbers else set()
        figures = {one for one in figures if not any(start <= one[0] and one[1] <= end for start, end in days)}
        figures = {one for one in figures if not any(o != one and o[0] <= one[0] and one[1] <= o[1] for o in figures)}
        figures = {one for one in figures if not _attached(text, *one)}
        self._kinds = [(count, places) for count, places in ((numbers, figures), (dates, days)) if count]

    def room(self, start: int, end: int) -> int:
        """For how many records text[start:end] has enough; many where they need nothing."""
        counts = [
            sum(start <= first and last <= end for first, last in places) // count for count, places in self._kinds
        ]
        return min(counts, default=_UNBOUNDED)

    def may_stand(self, offer: Offer, found: Sequence[Offer], end: int) -> bool:
        """Whether a record named by this offer would have what it needs, and the one before has it too."""
        if not found:
            return self.room(0, end) >= 1
        return self.room(found[-1].end, offer.start) >= 1 and self.room(found[-1].end, end) >= 1

    def against(self, offer: Offer, behind: int) -> float:
        """What speaks against an item that leaves whole records out, or holds a number itself; in nats."""
        inside = any(start < offer.end and offer.start < last for _, places in self._kinds for start, last in places)
        missed = self.room(behind, offer.start) - 1 if self._kinds else 0
        return _MISSED * max(0, missed) + _HOLDS * inside

    def left(self, found: Sequence[Offer], end: int) -> float:
        """What speaks for another record behind these, in nats."""
        if not self._kinds:
            return 0.0
        room = self.room(found[-1].end, end)
        if room == 1 and self.room(0, found[0].start):  # it may be this one's, or that of one more
            return 0.0
        return _ROOM if room > 1 else -_ROOM


def marks_between(text: str, behind: int, start: int) -> int:
    """How many marks stand between two places."""
    return sum(len(marks.findall(text[behind:start])) for marks in _MARKS)


def border(text: str, start: int, end: int) -> int:
    """Where, between two places, what is said of the first ends: behind the last of the strongest marks there."""
    between = text[start:end]
    for marks in _MARKS:
        found = [match.end() for match in marks.finditer(between) if not _inside(between[: match.start()])]
        if found:
            return start + found[-1]
    return end


def _inside(text: str) -> bool:
    """Whether a bracket is open at the end of a text."""
    return sum(map(text.count, "(（")) > sum(map(text.count, ")）"))


def _attached(text: str, start: int, end: int) -> bool:
    """Whether a number is part of a name such as BIO-210 or B22."""
    return re.search(r"(?:[A-Za-z]-?|\b[A-Z]{2,4} )$", text[:start]) is not None
