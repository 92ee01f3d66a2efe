"""Where a value stands in the text that it was taken from: offsets, and how it was found.

Three ways, the strictest first: character by character; in the normal form of both, with numbers and dates read as what
they mean; and nearly. A value that comes again takes the next place.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from rapidfuzz import fuzz

from chatlocal.engine.constraints.word_borders import borders, is_unspaced
from chatlocal.extractors.date_forms import dates, read_date
from chatlocal.extractors.normal_form import NormalForm, normal
from chatlocal.extractors.number_forms import numbers, read_number
from chatlocal.extractors.results import Span

# A value that is nearly in the text: how alike the two are at least (2 * what they share / both lengths), and how long
# the value is. Shorter ones are near to too much.
LIKENESS = 0.85
_SHORTEST_FUZZY = 4
# Letters of a value that may stand within a word: "an" is in "banana" and was not taken from it.
_SHORTEST_INSIDE = 4
# Words more or fewer than a fuzzy match has by itself that are tried at each of its ends, or between its words.
_WORDS_TRIED = 2
_MOST_WORDS = 8
_DIGITS = re.compile(r"\d+")


def align(value: Any, text: str) -> Span | None:
    """The first place of a value in a text; None where it is not in it.

    Strings are found as above. A number is found in any way to write it, True, False and None never.
    """
    return Aligner(text).align(value)


def align_all(values: Iterable[Any], text: str) -> list[Span | None]:
    """The places of values that were taken from one text, in their order: equal ones at successive places.

    One that comes more often than the text has it is at the last place again.
    """
    aligner = Aligner(text)
    return [aligner.align(value) for value in values]


class Aligner:
    """One text, and which places of it are taken. Reading the text takes about 0.2 s for 100,000 characters, once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._places: dict[tuple[type, Any], list[Span]] = {}
        self._taken: dict[str, set[tuple[int, int]]] = {}

    def align(self, value: Any) -> Span | None:
        """The next place of a value, as `align_all` has it."""
        free = self.free(value)
        if free:
            self.take(value, free[0])
        return free[0] if free else None

    def places(self, value: Any) -> list[Span]:
        """All places of a value that do not overlap, those that match more strictly first."""
        if value is None or isinstance(value, (bool, dict, list)):
            return []
        if (type(value), value) not in self._places:
            self._places[type(value), value] = self._found(value)
        return self._places[type(value), value]

    def free(self, value: Any) -> list[Span]:
        """Those of its places that were not taken; the last one where all were."""
        places = self.places(value)
        # Values that differ in case alone take each other's places.
        taken = self._taken.get(normal(str(value)), set())
        return [span for span in places if (span.start, span.end) not in taken] or places[-1:]

    def take(self, value: Any, span: Span) -> None:
        """The place is this value's, and an equal one gets another."""
        self._taken.setdefault(normal(str(value)), set()).add((span.start, span.end))

    def _found(self, value: Any) -> list[Span]:
        if not isinstance(value, str):
            return self._read(value)
        wanted = value.strip()
        if not wanted:
            return []
        exact = [Span(start, start + len(wanted), "exact") for start in _places(self.text, wanted)]
        exact = [span for span in exact if not self._cuts_a_number(span)]
        found = [span for span in exact if self._whole(span)]
        found += [span for span in self._in_normal_form(wanted) if self._whole(span)]
        found += self._read(wanted)
        if not found and _may_stand_inside(wanted):
            found = exact or self._in_normal_form(wanted)
        return _apart(found) or self._nearly(wanted)

    def _in_normal_form(self, wanted: str) -> list[Span]:
        found = [Span(start, end, "normalised") for start, end in self._form.find(normal(wanted))]
        return [span for span in found if not self._cuts_a_number(span)]

    def _read(self, value: Any) -> list[Span]:
        """Where another way to write a number or a date stands."""
        readings = read_number(value)
        places = [(start, end) for number in readings for start, end in self._numbers.get(number, ())]
        if isinstance(value, str):
            places += [(start, end) for day in read_date(value) for start, end in self._dates.get(day, ())]
        written = str(value)
        return [
            Span(start, end, "exact" if self.text[start:end] == written else "normalised")
            for start, end in sorted(set(places))
        ]

    def _nearly(self, wanted: str) -> list[Span]:
        """The place that is most like a value, from word to word."""
        form = normal(wanted)
        if len(form) < _SHORTEST_FUZZY:
            return []
        near = fuzz.partial_ratio_alignment(form, self._form.text, score_cutoff=100 * (LIKENESS - 0.15))
        if near is None or near.dest_end <= near.dest_start:
            return self._with_words_between(form)
        first, last = self._form.starts[near.dest_start], self._form.ends[near.dest_end - 1]
        best: Span | None = None
        for start in self._around(first):
            for end in self._around(last):
                span = self.text[start:end].strip()
                if not span or _DIGITS.findall(normal(span)) != _DIGITS.findall(form):
                    continue  # another number is another thing, however alike
                score = fuzz.ratio(form, normal(span)) / 100
                if score >= LIKENESS and (best is None or score > best.score):
                    begins = start + len(self.text[start:end]) - len(self.text[start:end].lstrip())
                    best = Span(begins, begins + len(span), "fuzzy", score)
        return self._with_words_between(form) if best is None else [best]

    def _with_words_between(self, form: str) -> list[Span]:
        """Where the words of a value stand in their order, a few others between: Anna Maria Berg for Anna Berg."""
        words = form.split()
        if not 1 < len(words) <= _MOST_WORDS:
            return []
        between = rf"(?:\s\w+){{0,{_WORDS_TRIED}}}?\s"
        match = re.search(rf"\b{between.join(map(re.escape, words))}\b", self._form.text)
        if match is None or _DIGITS.findall(match[0]) != _DIGITS.findall(form):
            return []
        start, end = self._form.starts[match.start()], self._form.ends[match.end() - 1]
        return [Span(start, end, "fuzzy", fuzz.ratio(form, match[0]) / 100)]

    def _around(self, offset: int) -> list[int]:
        """The borders nearest to an offset."""
        after = bisect_left(self._border_list, offset)
        return self._border_list[max(after - 2 * _WORDS_TRIED, 0) : after + 2 * _WORDS_TRIED + 1]

    def _whole(self, span: Span) -> bool:
        return span.start in self._borders and span.end in self._borders

    def _cuts_a_number(self, span: Span) -> bool:
        """Whether a span that begins or ends with a digit has only a part of a number there."""
        return (self.text[span.start].isdigit() and span.start in self._inside_numbers) or (
            self.text[span.end - 1].isdigit() and span.end in self._inside_numbers
        )

    @cached_property
    def _form(self) -> NormalForm:
        return NormalForm(self.text)

    @cached_property
    def _border_list(self) -> list[int]:
        return borders(self.text)

    @cached_property
    def _borders(self) -> frozenset[int]:
        return frozenset(self._border_list)

    @cached_property
    def _numbers(self) -> dict[Any, list[tuple[int, int]]]:
        return _by_value(numbers(self.text))

    @cached_property
    def _dates(self) -> dict[Any, list[tuple[int, int]]]:
        return _by_value(dates(self.text))

    @cached_property
    def _inside_numbers(self) -> frozenset[int]:
        """Offsets between two characters of one number in digits, such as before the comma of 1,200."""
        spans = {(start, end) for places in self._numbers.values() for start, end in places}
        digits = re.compile(r"\d[\d.,]*\d")
        return frozenset(
            start + place
            for start, end in spans
            if digits.fullmatch(self.text, start, end)
            for place in range(1, end - start)
        )


def _places(text: str, wanted: str) -> Iterable[int]:
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + 1)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The spans in order of how they were found, without those that overlap an earlier one."""
    kept: list[Span] = []
    taken: set[int] = set()
    for span in spans:
        places = range(span.start, span.end)
        if taken.isdisjoint(places):
            kept.append(span)
            taken.update(places)
    return kept


def _may_stand_inside(wanted: str) -> bool:
    return len(wanted) >= _SHORTEST_INSIDE or any(map(is_unspaced, wanted))


def _by_value(found: Iterable[Any]) -> dict[Any, list[tuple[int, int]]]:
    out: dict[Any, list[tuple[int, int]]] = {}
    for value, start, end in found:
        out.setdefault(value, []).append((start, end))
    return out
