"""Which of its places a value has, where a text says it more than once: one near the rest of its record.

Values that a text says once are where they are. The others of the same object go to the place nearest to those, and
where there are none, to the next one that is free.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from chatlocal.engine.constraints.references import escape
from chatlocal.extractors.grounding import Aligner
from chatlocal.extractors.results import Span

# The end of a sentence or line between two places counts as so many characters, and a comma as fewer.
_BORDER = re.compile(r"[.!?;](?=\s)|[。！？；\n]")
_SENTENCE = 100
_COMMA = re.compile(r"[,:](?=\s)|[，、：]")
_PART = 10
# Places that are looked at before and behind the rest of a record.
_LOOKED_AT = 8
# Characters between two places in which such marks are counted.
_FAR = 1000


def leaves(data: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """What is no object and no list, by JSON pointer, in order."""
    if isinstance(data, dict):
        return [leaf for key, child in data.items() for leaf in leaves(child, f"{pointer}/{escape(key)}")]
    if isinstance(data, list):
        return [leaf for place, child in enumerate(data) for leaf in leaves(child, f"{pointer}/{place}")]
    return [(pointer, data)]


def place(found: Sequence[tuple[str, Any]], aligner: Aligner) -> list[Span | None]:
    """A span for each leaf that the text has; the aligner knows which places are taken from there on."""
    spans: dict[str, Span] = {}
    # What is said once, by what it stands in: first that alone in which it stands itself, then all around.
    said_once: dict[tuple[str, bool], list[Span]] = {}
    for pointer, value in found:
        places = aligner.places(value)
        if len(places) == 1:
            spans[pointer] = places[0]
            aligner.take(value, places[0])
            for holder in _holders(pointer):
                said_once.setdefault(holder, []).append(places[0])
    for near in said_once.values():
        near.sort(key=lambda span: span.start)
    for pointer, value in found:
        free = [] if pointer in spans else aligner.free(value)
        if free:
            nearest_first = ((holder, alone) for holder, _ in _holders(pointer)[1:] for alone in (True, False))
            near = next((said_once[key] for key in nearest_first if key in said_once), [])
            # No string goes to a place that matches less well than another: "May" stays a month.
            alike = [span for span in free if span.match == free[0].match or not isinstance(value, str)]
            spans[pointer] = _nearest(alike, near, aligner.text) if near else alike[0]
            aligner.take(value, spans[pointer])
    return [spans.get(pointer) for pointer, _ in found]


def _holders(pointer: str) -> list[tuple[str, bool]]:
    """The pointers to what a leaf stands in, the nearest first: with its members alone, and with all that is in it.

    Up to the item of a list that it is a part of: other items are other records.
    """
    parts = pointer.split("/")
    around = []
    for count in range(len(parts) - 1, 0, -1):
        around.append("/".join(parts[:count]))
        if parts[count - 1].isdigit():
            break
    return [(around[0], True), *((holder, False) for holder in around)] if around else []


def _nearest(free: list[Span], near: list[Span], text: str) -> Span:
    """The span nearest to those in `near`, which are in order; another sentence is far away."""

    def distance(span: Span) -> int:
        behind = bisect_left(near, span.start, key=lambda one: one.start)
        return min(_apart(span, one, text) for one in near[max(behind - 1, 0) : behind + 1])

    ordered = sorted(free, key=lambda span: span.start)
    first = bisect_left(ordered, near[0].start, key=lambda span: span.start)
    last = bisect_left(ordered, near[-1].end, key=lambda span: span.start)
    return min(ordered[max(first - _LOOKED_AT, 0) : last + _LOOKED_AT], key=distance)


def _apart(one: Span, other: Span, text: str) -> int:
    start, end = min(one.end, other.end), max(one.start, other.start)
    between = text[start : min(end, start + _FAR)]
    return max(end - start, 0) + _SENTENCE * len(_BORDER.findall(between)) + _PART * len(_COMMA.findall(between))
