"""A text without what may be written in more than one way, each of its characters tied to those that it came from.

Alike become: upper and lower case, full and half width and other compatible forms (NFKC), decomposed letters, kinds of
quotes and dashes, any white space, spaces beside scripts that need none, commas between thousands. Invisible characters
go.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from chatlocal.engine.constraints.word_borders import clings, is_unspaced

_ALIKE = {
    **dict.fromkeys("‘’‚‛`´′‵＇", "'"),
    **dict.fromkeys("“”„‟«»″‶〝〞「」『』＂", '"'),
    **dict.fromkeys("‐‑‒–—―−﹘﹣－⁃", "-"),
    **dict.fromkeys("〜～∼", "~"),
    **dict.fromkeys("・·•", "·"),
    "、": ",",
    "。": ".",
}
# Hangul letters that NFKC joins with the one before them.
_JOINS = re.compile("[\u1160-\u11ff]")
_RUN = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3})+(?!\d)")


class NormalForm:
    """`text` is the normal form; character i of it came from `original[starts[i]:ends[i]]`."""

    def __init__(self, original: str) -> None:
        self._characters: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        for written, start, end in _clusters(original):
            for character in written:
                self._add(character, start, end)
        self._drop_commas()
        self.text = "".join(self._characters)

    def find(self, wanted: str) -> Iterator[tuple[int, int]]:
        """Where another normal form stands, as offsets of the original; never a part of one of its characters."""
        place = self.text.find(wanted) if wanted else -1
        while place >= 0:
            last = place + len(wanted)
            if not self._splits(place) and not self._splits(last):
                yield self.starts[place], self.ends[last - 1]
            place = self.text.find(wanted, place + 1)

    def _add(self, character: str, start: int, end: int) -> None:
        last = self._characters[-1] if self._characters else ""
        if character == " " and (last == " " or (last and is_unspaced(last))):
            return
        if last == " " and is_unspaced(character):
            for listed in (self._characters, self.starts, self.ends):
                listed.pop()
        self._characters.append(character)
        self.starts.append(start)
        self.ends.append(end)

    def _drop_commas(self) -> None:
        joined = "".join(self._characters)
        commas = [
            place
            for number in _THOUSANDS.finditer(joined)
            for place in range(number.start(), number.end())
            if joined[place] == ","
        ]
        for listed in (self._characters, self.starts, self.ends):
            for place in reversed(commas):
                del listed[place]

    def _splits(self, place: int) -> bool:
        """Whether the characters on both sides of a place came from one."""
        return 0 < place < len(self.starts) and self.starts[place] < self.ends[place - 1]


def normal(text: str) -> str:
    """The normal form alone, without white space around it."""
    return NormalForm(text.strip()).text.strip()


def _clusters(text: str) -> Iterator[tuple[str, int, int]]:
    """What each group of characters that belong together becomes, with where the group begins and ends."""
    for run in _RUN.finditer(text):
        start, end = run.span()
        if text[start].isascii():
            # Its last character may have marks in the next run.
            for place in range(start, end - 1 if end < len(text) else end):
                yield _of_ascii(text[place]), place, place + 1
            if end < len(text) and not _continues(text[end]):
                yield _of_ascii(text[end - 1]), end - 1, end
        else:
            first = start - 1 if start and _continues(text[start]) else start
            for place in range(start, end):
                if place > first and not _continues(text[place]):
                    yield _of_group(text[first:place]), first, place
                    first = place
            yield _of_group(text[first:end]), first, end


def _continues(character: str) -> bool:
    return clings(character) or _JOINS.match(character) is not None


def _of_ascii(character: str) -> str:
    return " " if character.isspace() else _ALIKE.get(character, character.lower())


@lru_cache(maxsize=4096)
def _of_group(group: str) -> str:
    out = []
    for character in unicodedata.normalize("NFKC", "".join(_ALIKE.get(each, each) for each in group)).casefold():
        if character.isspace():
            out.append(" ")
        elif unicodedata.category(character) != "Cf" and not "\ufe00" <= character <= "\ufe0f":
            out.append(_ALIKE.get(character, character))
    return "".join(out)
