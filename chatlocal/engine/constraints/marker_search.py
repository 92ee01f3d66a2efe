"""Finding markers in a text that grows by tokens, and the tokens that would run over the end of one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.protocol import Tokens

_SPACE = b" \t\r\n"


class Progress(NamedTuple):
    """What of a text matters for its markers: its last bytes, and whether only white space stands before them.

    `tail` are the bytes that may belong to a marker, `line` and `text` whether nothing but white space stands before
    the tail on its line and in the whole text.
    """

    tail: bytes = b""
    line: bool = True
    text: bool = True


@dataclass(frozen=True)
class Marker:
    """A marker as bytes, with its place as Opening has it."""

    spelling: bytes
    place: str


class MarkerSearch:
    """Markers over one vocabulary. Shared by any number of threads.

    A marker ends where a token ends: a token that holds the end of one and more is not `allowed`, so that what follows
    a marker is always a text of its own.
    """

    def __init__(self, markers: tuple[Marker, ...], tokens: Tokens) -> None:
        self._markers = markers
        self._tokens = tokens
        self._longest = max((len(marker.spelling) for marker in markers), default=1)
        self._names = {id: name.encode() for name, id in tokens.named.items()}
        self._over: dict[Progress, NDArray[np.int64]] = {}
        self._lock = Lock()

    def advance(self, progress: Progress, id: int) -> tuple[Progress, int | None] | None:
        """The progress after an id and the marker that ends with it, if one does; None where the id cannot follow."""
        text = self._names.get(id) or self._tokens.texts[id]
        if not text or self._runs_over(progress, text):
            return None
        return self.step(progress, text)

    def step(self, progress: Progress, text: bytes) -> tuple[Progress, int | None]:
        """The progress after more text and the marker that ends with it, if one does."""
        return self._after(progress, text), self._ending(progress, text)

    def towards(self, marker: int, progress: Progress) -> int | None:
        """The next id of a marker: its control token, or what spells the rest of it; None where no token does."""
        spelling = self._markers[marker].spelling
        known = self._tokens.named.get(spelling.decode())
        if known is not None:
            return known
        rest = spelling[_overlap(progress.tail, spelling[:-1]) :]
        return next(iter(self._tokens.encode(rest.decode(errors="ignore"))), None)

    def allowed(self, progress: Progress, allowed: NDArray[np.bool_]) -> None:
        """Set True at each id that may follow."""
        allowed |= self._all
        allowed[self._running_over(progress)] = False

    @cached_property
    def _all(self) -> NDArray[np.bool_]:
        found = np.array([bool(text) for text in self._tokens.texts], dtype=np.bool_)
        found[list(self._names)] = True
        return found

    @cached_property
    def _suspects(self) -> list[int]:
        """Ids whose text holds the last byte of a marker and something behind it."""
        lasts = {marker.spelling[-1:] for marker in self._markers}
        return [id for id, text in enumerate(self._tokens.texts) if any(last in text[:-1] for last in lasts)]

    def _running_over(self, progress: Progress) -> NDArray[np.int64]:
        key = self._relevant(progress)
        with self._lock:
            known = self._over.get(key)
        if known is None:
            over = [id for id in self._suspects if self._runs_over(key, self._tokens.texts[id])]
            known = np.array(over, dtype=np.int64)
            with self._lock:
                self._over[key] = known
        return known

    def _relevant(self, progress: Progress) -> Progress:
        """The progress without what no marker can go on from, so that there are few different ones."""
        tail = progress.tail
        proper = (marker.spelling[: len(marker.spelling) - 1] for marker in self._markers)
        held = max((_overlap(tail, start) for start in proper), default=0)
        return self._moved(progress, len(tail) - held)

    def _runs_over(self, progress: Progress, text: bytes) -> bool:
        """Whether a marker ends within the text, before its last byte."""
        whole = progress.tail + text
        for marker in self._markers:
            start = whole.find(marker.spelling, 0, len(whole) - 1)
            while start >= 0:
                if start + len(marker.spelling) > len(progress.tail) and self._stands(progress, whole, start, marker):
                    return True
                start = whole.find(marker.spelling, start + 1, len(whole) - 1)
        return False

    def _ending(self, progress: Progress, text: bytes) -> int | None:
        """The longest marker that ends with the text."""
        whole = progress.tail + text
        found = []
        for index, marker in enumerate(self._markers):
            start = len(whole) - len(marker.spelling)
            if whole.endswith(marker.spelling) and self._stands(progress, whole, start, marker):
                found.append(index)
        return max(found, key=lambda index: len(self._markers[index].spelling), default=None)

    def _stands(self, progress: Progress, whole: bytes, start: int, marker: Marker) -> bool:
        """Whether a marker that begins at `start` of the tail with new text stands where it counts."""
        moved = self._moved(progress._replace(tail=whole), start)
        return {"anywhere": True, "line": moved.line, "start": moved.text}[marker.place]

    def _after(self, progress: Progress, text: bytes) -> Progress:
        whole = progress._replace(tail=progress.tail + text)
        return self._moved(whole, max(0, len(whole.tail) - self._longest + 1))

    def _moved(self, progress: Progress, count: int) -> Progress:
        """The progress with the first `count` bytes of its tail behind it."""
        passed, tail = progress.tail[:count], progress.tail[count:]
        _, newline, last = passed.rpartition(b"\n")
        line = not last.strip(_SPACE) and (progress.line or bool(newline))
        return Progress(tail, line, progress.text and not passed.strip(_SPACE))


def _overlap(text: bytes, beginning: bytes) -> int:
    """How many of the last bytes of a text are a beginning of `beginning`."""
    return next(size for size in range(min(len(text), len(beginning)), -1, -1) if text.endswith(beginning[:size]))
