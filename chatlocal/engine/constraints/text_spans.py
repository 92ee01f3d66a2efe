"""The spans of a text as JSON strings: a regex of llguidance over an automaton of all substrings.

The automaton reads the text as it is written in JSON, in pieces that are never cut: an escape such as `\\n` is one, and
with whole words a word is. Non-ASCII stands as itself.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Literal

from chatlocal.engine.constraints.word_borders import pieces

Borders = Literal["words", "characters"]
"""Where a span may begin and end: at borders of words and not at white space, or anywhere."""

# One character of a JSON string as json.dumps writes it, and one that is not white space as str.isspace says.
_CHARACTER = r'([^"\\\x00-\x1f]|\\u[0-9a-f]{4}|\\[^u])'
_SPACES = r" \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_VISIBLE = rf'([^{_SPACES}"\\\x00-\x1f]|\\["\\b]|\\u00(0[0-9ac-f]|1[0-9ab]))'
# Stand for a piece that no span may hold: among the pieces, and in the automaton, as JSON strings have no bare
# control characters.
_GAP = ""
_WRITTEN_GAP = "\x00"


class TextSpans:
    """All spans of a text. `can_write` says of a piece whether the tokens can spell it; spans do without others."""

    def __init__(self, text: str, can_write: Callable[[str], bool]) -> None:
        self._text = text
        self._can_write = can_write
        self._pieces: dict[Borders, list[str]] = {}

    def automaton(self, borders: Borders) -> str:
        """Every row of pieces of the text, as a regex of llguidance's Lark syntax."""
        written = [json.dumps(piece, ensure_ascii=False)[1:-1] or _WRITTEN_GAP for piece in self._cut(borders)]
        return f"%regex {json.dumps({'substring_chunks': written}, ensure_ascii=False)}" if written else '""'

    def shortest(self, borders: Borders, least: int = 0, most: int | None = None) -> str | None:
        """A shortest span of `least` to `most` characters; None where there is none."""
        if not least:
            return ""
        found = self._cut(borders)
        ends = list(accumulate(map(len, found)))
        may_end = [not (borders == "words" and piece.isspace()) for piece in found]
        following: list[int] = []  # backwards: the first piece from here on with which a span may end
        for place in reversed(range(len(found))):
            following.append(place if may_end[place] or not following else following[-1])
        best: list[str] | None = None
        size = len(self._text) + 1 if most is None else most + 1
        for first, end in enumerate(ends):
            start = end - len(found[first])
            last = bisect_left(ends, start + least)
            if last == len(found) or not may_end[first]:
                continue
            last = following[-1 - last]
            if may_end[last] and ends[last] - start < size and _GAP not in found[first : last + 1]:
                best, size = found[first : last + 1], ends[last] - start
        return None if best is None else "".join(best)

    def _cut(self, borders: Borders) -> list[str]:
        if borders not in self._pieces:
            cut = pieces(self._text) if borders == "words" else list(self._text)
            self._pieces[borders] = [piece if self._can_write(piece) else _GAP for piece in cut]
        return self._pieces[borders]


def form(borders: Borders, least: int = 0, most: int | None = None) -> str:
    """A regex for what a span between its quotes looks like, with `least` to `most` characters."""
    if borders == "characters":
        return f"{_CHARACTER}{_times(least, most)}"
    longest = least if most is None else most
    ways = ["()"] if not least else []
    if least <= 1 and (most is None or most >= 1):
        ways.append(_VISIBLE)
    if most is None or longest >= 2:
        ways.append(f"{_VISIBLE}{_CHARACTER}{_times(max(least - 2, 0), None if most is None else most - 2)}{_VISIBLE}")
    return "|".join(ways)


def _times(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}"
