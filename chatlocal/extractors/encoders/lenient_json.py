"""JSON as models write it: what is clearly readable is read, where a strict reader would give up.

Comments, trailing and missing commas, single and curly quotes, unquoted keys, Python's constants, quotes inside of
strings, and brackets that nobody closed.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_ZEROS = re.compile(r"-?0\d")
_CONSTANT = re.compile(r"(true|false|null|True|False|None)(?!\w)")
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_KEY = re.compile(r"[^\W\d][\w\-]*")
_CLOSING_QUOTE = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_BEHIND_STRING = re.compile(r"\s*(?:[,:，：}\]]|//|/\*|</|```|\Z|\n\s*[\"'“‘}\]])")
_UNICODE = re.compile(r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
# Where the text around the JSON goes on: a closing tag, the end of a code fence, the end of the text.
_OUTSIDE = re.compile(r"</|```|\Z")
_DEEPEST = 200


class Reading(NamedTuple):
    value: Any
    end: int
    cut: bool
    """The text ends in the middle of a value, and that one is left out."""
    open: bool = False
    """The text ends with brackets that nobody closed: there may be more."""


def read(text: str, start: int) -> Reading | None:
    """The JSON value that begins at a bracket; None for what is none."""
    try:
        value, end = _STRICT.raw_decode(text, start)
        return Reading(value, end, False)
    except (ValueError, RecursionError):
        reader = _Reader(text, start)
    try:
        return Reading(reader.value(0), reader.place, reader.cut, reader.open)
    except _Unreadable:
        return None


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_STRICT = json.JSONDecoder(strict=False, parse_constant=_refused)


def _scalar(written: str) -> Any:
    if written in _CONSTANTS:
        return _CONSTANTS[written]
    if _ZEROS.match(written):  # 01234 is a code, and whoever wants a number makes one of the text
        return written
    plain = written.replace("_", "")
    return int(plain) if plain.lstrip("+-").isdigit() else float(plain)


class _Unreadable(Exception):
    pass


class _Cut(Exception):
    """The text ends here."""


class _Reader:
    def __init__(self, text: str, place: int) -> None:
        self.place = place
        self.cut = False
        self.open = False
        self._text = text

    def value(self, depth: int) -> Any:
        first = self._next()
        if depth > _DEEPEST:
            raise _Unreadable
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first in _CLOSING_QUOTE:
            return self._string()
        for pattern in (_NUMBER, _CONSTANT):
            found = pattern.match(self._text, self.place)
            if found:
                self.place = found.end()
                if self.place == len(self._text):
                    raise _Cut  # 1 may be the beginning of 12
                return _scalar(found[0])
        if self._outside():
            raise _Cut
        raise _Unreadable

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.place += 1
        while not self._closed("}"):
            try:
                key = self._key()
                if self._next() not in (":", "："):
                    raise _Cut if self._outside() else _Unreadable
                self.place += 1
                self._next()
                found[key] = self.value(depth + 1)
            except _Cut:
                self.cut = True
                self.place = len(self._text)
                return found
            self._comma()
        return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.place += 1
        while not self._closed("]"):
            try:
                found.append(self.value(depth + 1))
            except _Cut:
                self.cut = True
                self.place = len(self._text)
                return found
            self._comma()
        return found

    def _closed(self, bracket: str) -> bool:
        """Whether the object or array ends here: at its bracket, at another one's, or where the JSON is over."""
        here = self._next()
        if here == bracket:
            self.place += 1
            return True
        self.open = self.open or not here
        return here in ("}", "]") or self._outside()

    def _comma(self) -> None:
        if self._next() in (",", "，"):
            self.place += 1
        elif not (self._next() in ("}", "]", "{", "[", *_CLOSING_QUOTE) or self._outside()):
            raise _Unreadable

    def _key(self) -> str:
        if self._next() in _CLOSING_QUOTE:
            return self._string()
        found = _KEY.match(self._text, self.place)
        if found is None:
            raise _Unreadable
        self.place = found.end()
        return found[0]

    def _string(self) -> str:
        closing = _CLOSING_QUOTE[self._text[self.place]]
        out: list[str] = []
        place = self.place + 1
        while place < len(self._text):
            character = self._text[place]
            if character == "\\":
                written, place = self._escaped(place + 1)
                out.append(written)
                continue
            place += 1
            if character == closing and _BEHIND_STRING.match(self._text, place):
                self.place = place
                return "".join(out)
            out.append(character)
        raise _Cut

    def _escaped(self, place: int) -> tuple[str, int]:
        """The character behind a backslash, surrogates as one, and where it ends."""
        found = _UNICODE.match(self._text, place)
        if found:
            return json.loads(f'"\\{found[0]}"'), found.end()
        character = self._text[place : place + 1]
        return _ESCAPES.get(character, character), place + 1

    def _next(self) -> str:
        """The next character that says something, "" at the end."""
        found = _SPACE.match(self._text, self.place)
        assert found is not None  # it matches nothing too
        self.place = found.end()
        return self._text[self.place : self.place + 1]

    def _outside(self) -> bool:
        return _OUTSIDE.match(self._text, self.place) is not None
