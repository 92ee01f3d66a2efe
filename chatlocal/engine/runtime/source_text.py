"""Where a value that is being written stands in the text it is taken from, and where it may end there."""

from __future__ import annotations

import re
from typing import NamedTuple

# Bytes that a value goes on for at most.
_LONGEST = 96
# Where a word begins: behind what is neither a letter nor a digit; each character that is not ASCII may begin one.
_BEGINNINGS = re.compile(rb"(?<![0-9A-Za-z])[0-9A-Za-z]|[^\s0-9A-Za-z\x80-\xbf]")
_LAST_WORD = re.compile(rb"[^0-9A-Za-z\x80-\xff]([0-9A-Za-z\x80-\xff]+)$")
_NAME = re.compile(rb"(?<![0-9A-Za-z])[A-Z]")
_DIGITS = re.compile(rb"(?<![0-9A-Za-z.,])[0-9]")
# Letters of articles and abbreviations: The, Mrs.
_SHORT = 3
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# A word up to the sign that ends its phrase. What JSON would write in another way ends the text.
_WORD = re.compile(r"([^\s\"\\]*?)([,.;:!?)\]}'，。；：！？、）》”’]*)(?=[\s\"\\]|$)( ?)")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_UNESCAPED = re.compile(r"[^\x00-\x1f\"\\]*")


class Continuation(NamedTuple):
    """`text` goes on to where the value may end; `certain` says how well that end is known."""

    text: bytes
    certain: str


class SourceText:
    """A text and the places where words begin in it. Values are mostly taken from it in its own order."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._beginnings: dict[int, list[int]] = {}
        self._taken = len(text)  # up to where values have been taken
        for found in _BEGINNINGS.finditer(text):
            self._beginnings.setdefault(text[found.start()], []).append(found.start())

    def going_on(self, begun: bytes, quoted: bool) -> Continuation | None:
        """How a value of which `begun` is written would go on as in this text, where it was there last.

        `quoted`: it is a string. None where neither it nor its last word was there.
        """
        place = self._place(begun)
        if place is not None:
            self._taken = place + len(begun)
            return self._continued(place, len(begun), quoted)
        word = _LAST_WORD.search(begun)
        place = self._place(word[1]) if quoted and word else None
        if place is None or word is None:
            return None
        return self._continued(place, len(word[1]), quoted)._replace(certain="last word")

    def next_value(self, quoted: bool) -> Continuation | None:
        """The next number or name behind the place where the last value was taken from."""
        found = (_NAME if quoted else _DIGITS).search(self._text, self._taken)
        return None if found is None else self._continued(found.start(), 0, quoted)

    def _continued(self, place: int, begun: int, quoted: bool) -> Continuation:
        """How the text goes on behind `begun` bytes from a place."""
        here = self._text[place : place + begun + _LONGEST].decode(errors="ignore")
        written = self._text[place : place + begun].decode(errors="ignore")
        ends, certain = self._phrase(_UNESCAPED.match(here)[0], len(written), quoted)  # type: ignore[index]
        return Continuation(here[:ends].encode()[begun:], certain)

    def _place(self, begun: bytes) -> int | None:
        if not begun:
            return None
        for place in reversed(self._beginnings.get(begun[0], [])):
            if self._text.startswith(begun, place):
                return place
        return None

    def _phrase(self, text: str, begun: int, quoted: bool) -> tuple[int, str]:
        """Where the phrase that `text` begins with ends, behind the first `begun` characters, and how one knows."""
        if not quoted:
            number = _NUMBER.match(text)
            return (max(begun, number.end()) if number else begun), "number"
        ideographs = _IDEOGRAPHS.match(text)
        if ideographs:
            return max(begun, ideographs.end()), "ideographs"
        place = 0
        while place < len(text):
            word = _WORD.match(text, place)
            if word is None:
                break
            end, following = word.end(1), text[word.end() : word.end() + 1]
            if end >= begun and not self._goes_on(word, following):
                return end, "capital" if text[0].isupper() else "digit" if text[0].isdigit() else "word"
            place = max(word.end(), place + 1)
        return max(begun, len(text)), "open"

    def _goes_on(self, word: re.Match[str], following: str) -> bool:
        """Whether a phrase goes on behind this word of it: a name, an article, an abbreviation, a bare number."""
        if not word[3] or not following:
            return False
        if word[2]:
            return word[2] == "." and len(word[1]) <= _SHORT and following.isupper()
        if word[1][:1].isupper() and (following.isupper() or following.isdigit()):
            return True
        return word.start() == 0 and (word[1].isdigit() or self._is_article(word[1]))

    def _is_article(self, word: str) -> bool:
        """Whether a word of few letters is there in small letters too, so that a capital makes no name of it."""
        return len(word) <= _SHORT and f" {word.lower()} ".encode() in self._text
