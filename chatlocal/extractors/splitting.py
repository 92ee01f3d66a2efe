"""Cutting a long text into parts that a model reads one by one. Knows no model: it is handed a way to count tokens.

A part ends at the strongest border in its second half: a blank line, else a line's end, a sentence's, a clause's, a
word's; inside of a word only where that alone is longer than a part. The next part begins earlier than the last one
ended, so that what stands on a border is whole in one of them.

Of libraries, semantic-text-splitter 0.33 was tried: it leaves headings alone in parts of their own, because it takes no
shorter unit behind a longer one, and ends a sentence behind "Dr.", which parts a name from its title.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from chatlocal.engine.errors import UnsupportedInput


class Part(NamedTuple):
    """Characters start to end of a text, the end exclusive; neither of them is white space."""

    start: int
    end: int


class Border(IntEnum):
    """What ends at a position, the weakest first."""

    WORD = 1
    CLAUSE = 2
    SENTENCE = 3
    LINE = 4
    PARAGRAPH = 5


# Closing quotes and brackets belong to the sentence that they end.
_CLOSING = "\"'”’»)\\]）】》」』〉"
_PATTERNS = (
    (Border.PARAGRAPH, re.compile(r"\n[^\S\n]*\n\s*")),
    (Border.LINE, re.compile(r"\n[^\S\n]*(?![^\S\n]*\n)")),
    (Border.SENTENCE, re.compile(rf"[.!?…]+[{_CLOSING}]*[^\S\n]+")),
    (Border.SENTENCE, re.compile(rf"[。！？｡．]+[{_CLOSING}]*[^\S\n]*|(?:……|；)[{_CLOSING}]*")),
    (Border.CLAUSE, re.compile(rf"[,;:–—]+[{_CLOSING}]*[^\S\n]+|[，、：]")),
    (Border.WORD, re.compile(r"[^\S\n]+")),
)
# Chinese, Japanese and Thai are written without spaces: any of their characters may end a word.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'“‘])(?:[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]|Mr|Mrs|Ms|Mx|Dr|Prof|St|Jr|Sr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Gov|Sen"
    r"|Rep|Pres|Messrs|vs|cf|al|ca|approx|No|Nos|Fig|Figs|Eq|Sec|Ch|Vol|pp|p|Inc|Ltd|Co|Corp|Bros|Dept|Est|Ave|Blvd"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.$"
)
_LONGEST_ABBREVIATION = 12  # characters, with what stands before


def borders(text: str) -> dict[int, Border]:
    """Where something ends, and what: positions of `text` at which a part may end and the next one may begin."""
    found = {match.end(): Border.WORD for match in _UNSPACED.finditer(text)}
    for border, pattern in reversed(_PATTERNS):
        for match in pattern.finditer(text):
            if border is not Border.SENTENCE or not _goes_on(text, match):
                found[match.end()] = max(border, found.get(match.end(), border))
    for position in [at for at in found if not 0 < at < len(text) or _inside_a_character(text, at)]:
        del found[position]
    return found


def _goes_on(text: str, stop: re.Match[str]) -> bool:
    """Whether the sentence goes on behind a full stop: behind an abbreviation or an initial, before a small letter."""
    if not stop[0].startswith("."):
        return False
    if text[stop.end() : stop.end() + 1].islower():
        return True
    return _ABBREVIATION.search(text, max(0, stop.start() - _LONGEST_ABBREVIATION), stop.start() + 1) is not None


def _inside_a_character(text: str, at: int) -> bool:
    """Whether the position parts a mark from its letter, or the pieces of a joined emoji."""
    after = text[at]
    return text[at - 1] == "\u200d" or after == "\u200d" or unicodedata.category(after)[0] == "M" or after in _SKIN


_SKIN = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def split(text: str, count: Callable[[str], int], *, max_tokens: int, overlap_tokens: int = 0) -> list[Part]:
    """Parts of at most `max_tokens` by `count`, in order, that leave out nothing but white space.

    Each begins at most `overlap_tokens` before the end of the last one. A single character that is more than
    `max_tokens` is a part all the same.
    """
    if not 0 <= overlap_tokens < max_tokens:
        raise UnsupportedInput(
            f"Parts of {max_tokens} tokens cannot share {overlap_tokens}: an overlap is at least 0 and below the parts."
        )
    return _Splitter(text, count, max_tokens, overlap_tokens).parts()


class _Splitter:
    def __init__(self, text: str, count: Callable[[str], int], max_tokens: int, overlap_tokens: int) -> None:
        self._text = text
        self._count = count
        self._max = max_tokens
        self._overlap = overlap_tokens
        self._levels = borders(text)
        self._end = len(text.rstrip())
        self._places = sorted(at for at in self._levels if at < self._end)

    def parts(self) -> list[Part]:
        found: list[Part] = []
        start, behind = self._begin(0), 0
        while start < self._end:
            end = self._cut(start, behind)
            if end <= behind:  # what follows needs a part of its own
                start = self._begin(behind)
                end = self._cut(start, behind)
            part = Part(start, start + len(self._text[start:end].rstrip()))
            found.append(part)
            behind = end
            start = self._begin(end if end >= self._end else self._shared(part))
        return found

    def _begin(self, at: int) -> int:
        """The first character at or behind a position that is no white space."""
        rest = self._text[at:]
        return at + len(rest) - len(rest.lstrip())

    def _fits(self, start: int, end: int, tokens: int) -> bool:
        return self._count(self._text[start:end].strip()) <= tokens

    def _cut(self, start: int, behind: int) -> int:
        """The end of a part that begins at `start`; at or before `behind` where no border behind it can be reached."""
        places = [*self._places[bisect_right(self._places, max(start, behind)) :], self._end]
        reached = _farthest(places, lambda at: self._fits(start, at, self._max))
        if reached is None:
            return behind if behind > start else self._inside_a_word(start)
        if reached >= self._end:
            return self._end
        half = max(start + (reached - start) // 2, start + 1, behind + 1)
        choices = self._places[bisect_left(self._places, half) : bisect_right(self._places, reached)]
        for at in sorted(choices, key=lambda at: (self._levels[at], at), reverse=True):
            if at == reached or self._fits(start, at, self._max):
                return at
        return reached

    def _inside_a_word(self, start: int) -> int:
        stop = bisect_right(self._places, start)
        word = self._places[stop] if stop < len(self._places) else self._end
        inside = [at for at in range(start + 1, word) if not _inside_a_character(self._text, at)]
        reached = _farthest(inside, lambda at: self._fits(start, at, self._max))
        return reached if reached is not None else next(iter(inside), word)

    def _shared(self, part: Part) -> int:
        """Where the next part begins: at the first sentence that is near enough, else at a clause or a word."""
        if not self._overlap:
            return part.end
        low = bisect_right(self._places, part.start)
        high = bisect_left(self._places, part.end)
        near = self._places[low:high][::-1]
        reached = _farthest(near, lambda at: self._fits(at, part.end, self._overlap))
        if reached is None:
            return part.end
        choices = [at for at in near if at >= reached]
        return max(choices, key=lambda at: (min(self._levels[at], Border.SENTENCE), -at))


def _farthest(places: list[int], fits: Callable[[int], bool]) -> int | None:
    """The last place that fits, where those up to it do: few questions, because each one counts tokens."""
    low, step = -1, 1
    while low + step < len(places) and fits(places[low + step]):
        low += step
        step *= 2
    high = min(low + step, len(places))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(places[middle]) else (low, middle)
    return places[low] if low >= 0 else None
