"""Where each value of a JSON text stands in it."""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # json's own reader of strings
from typing import NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


class Span(NamedTuple):
    """A value at a JSON pointer (RFC 6901), from character `start` to `end`; `number`: it is one."""

    pointer: str
    start: int
    end: int
    number: bool


def spans(text: str) -> list[Span]:
    """Every value, what stands in another one before it. ValueError for what is no JSON text or nested too deeply."""
    reader = _Reader(text)
    try:
        reader.value("")
    except (IndexError, RecursionError) as error:
        raise ValueError("the text is cut or nested too deeply") from error
    if reader.place != len(text):
        raise ValueError(f"something follows the value at {reader.place}")
    return reader.found


class _Reader:
    def __init__(self, text: str) -> None:
        self.found: list[Span] = []
        self.place = 0
        self._text = text
        self._space()

    def value(self, pointer: str) -> None:
        start, first = self.place, self._text[self.place]
        number = False
        if first == "{":
            self._members(pointer, "}")
        elif first == "[":
            self._members(pointer, "]")
        elif first == '"':
            self._string()
        else:
            literal = _LITERAL.match(self._text, start)
            if literal is None:
                raise ValueError(f"no value at {start}")
            self.place, number = literal.end(), literal[0][-1].isdigit()
        self.found.append(Span(pointer, start, self.place, number))
        self._space()

    def _members(self, pointer: str, closing: str) -> None:
        self._take(self._text[self.place])
        count = 0
        while self._text[self.place] != closing:
            if count:
                self._take(",")
            key = str(count)
            if closing == "}":
                key = self._string().replace("~", "~0").replace("/", "~1")
                self._space()
                self._take(":")
            self.value(f"{pointer}/{key}")
            count += 1
        self.place += 1

    def _string(self) -> str:
        if self._text[self.place] != '"':
            raise ValueError(f"no string at {self.place}")
        string, self.place = scanstring(self._text, self.place + 1, True)
        return str(string)

    def _take(self, character: str) -> None:
        if self._text[self.place] != character:
            raise ValueError(f"no {character!r} at {self.place}")
        self.place += 1
        self._space()

    def _space(self) -> None:
        match = _SPACE.match(self._text, self.place)
        assert match is not None  # it matches nothing too
        self.place = match.end()
