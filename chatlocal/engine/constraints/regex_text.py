"""A short text that a regular expression matches, found by reading the expression.

For suggestions: anchors and boundaries are taken to hold where they stand, so a text may turn out not to match.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(
    r"\\[pP]\{[^}]*\}|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?[a-z-]*[:)]|\(\?P?<[A-Za-z]\w*>|\(\?|[*+?]|\{\d+(?:,\d*)?\}|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"\{(\d+)(,?)(\d*)\}")
# Letters first: tokens of letters are longer than those of digits.
_CHARACTERS = string.ascii_letters + string.digits + " -_./:@#" + string.punctuation + "\n\t"
_PROPERTY = re.compile(r"\\[pP]\{[^}]*\}")
_UNBOUNDED = 1 << 30


@lru_cache(maxsize=1024)
def shortest_match(pattern: str, at_least: int = 0) -> str | None:
    """A text that a pattern matches somewhere in it, short but of so many characters; None where none is known."""
    try:
        text = _Reader(pattern).read().text(at_least)
    except _Unknown:
        return None
    missing = at_least - len(text)
    if missing <= 0:
        return text
    if not pattern.endswith("$"):
        return text + "a" * missing
    return None if pattern.startswith("^") else "a" * missing + text


class _Unknown(Exception):
    """What this file does not read, such as look-around."""


class _Node:
    def text(self, least: int) -> str:
        """A short text of it, where it can of so many characters or more."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Literal(_Node):
    character: str

    def text(self, least: int) -> str:
        return self.character


@dataclass(frozen=True)
class _Chain(_Node):
    parts: list[_Node]

    def text(self, least: int) -> str:
        texts = [part.text(0) for part in self.parts]
        missing = least - sum(map(len, texts))
        for place, part in enumerate(self.parts):
            if missing <= 0:
                break
            longer = part.text(len(texts[place]) + missing)
            missing -= len(longer) - len(texts[place])
            texts[place] = longer
        return "".join(texts)


@dataclass(frozen=True)
class _Choice(_Node):
    options: list[_Node]

    def text(self, least: int) -> str:
        texts = [option.text(least) for option in self.options]
        enough = [text for text in texts if len(text) >= least]
        return min(enough, key=len) if enough else max(texts, key=len)


@dataclass(frozen=True)
class _Repeat(_Node):
    part: _Node
    fewest: int
    most: int

    def text(self, least: int) -> str:
        texts = [self.part.text(0)] * self.fewest
        missing = least - sum(map(len, texts))
        if missing > 0 and texts:
            texts[0] = self.part.text(len(texts[0]) + missing)
            missing = least - sum(map(len, texts))
        while missing > 0 and len(texts) < self.most:
            more = self.part.text(missing)
            if not more:
                break
            texts.append(more)
            missing -= len(more)
        return "".join(texts)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._tokens = [match[0] for match in _TOKEN.finditer(pattern)]
        self._place = 0

    def read(self) -> _Node:
        """An expression up to a closing bracket or the end."""
        options: list[_Node] = []
        parts: list[_Node] = []
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token == ")":
                break
            self._place += 1
            if token == "|":
                options.append(_Chain(parts))
                parts = []
            elif token in ("*", "+", "?") or _REPEAT.fullmatch(token):
                if not parts:
                    raise _Unknown
                parts[-1] = self._repeated(parts[-1], token)
            else:
                parts.append(self._one(token))
        return _Choice([*options, _Chain(parts)]) if options else _Chain(parts)

    def _repeated(self, part: _Node, token: str) -> _Node:
        if self._tokens[self._place : self._place + 1] in (["?"], ["+"]):  # lazy or possessive
            self._place += 1
        counted = _REPEAT.fullmatch(token)
        if counted is None:
            return _Repeat(part, int(token == "+"), 1 if token == "?" else _UNBOUNDED)
        fewest = int(counted[1])
        return _Repeat(part, fewest, int(counted[3]) if counted[3] else _UNBOUNDED if counted[2] else fewest)

    def _one(self, token: str) -> _Node:
        if token == "(?" or token[:2] in ("\\k", "\\P") or (token[0] == "\\" and token[1] in "123456789"):
            raise _Unknown
        if token.startswith("(") and not token.endswith(")"):
            inner = self.read()
            if self._place == len(self._tokens):
                raise _Unknown
            self._place += 1
            return inner
        if token in ("^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z") or token.startswith("("):
            return _Chain([])
        return _Literal(_character(token))


def _character(token: str) -> str:
    """A character that a token for one stands for: a letter where one fits."""
    if len(token) == 1:
        return "a" if token == "." else token
    readable = _PROPERTY.sub("A-Z" if "{Lu}" in token else "A-Za-z", token)
    if token.startswith("\\p"):
        readable = f"[{readable}]"
    try:
        one = re.compile(readable)
    except re.error:
        raise _Unknown from None
    character: str
    for character in (*_CHARACTERS, *token):
        if one.fullmatch(character):
            return character
    raise _Unknown
