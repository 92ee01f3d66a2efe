"""Limits on a grammar of JSON text: strings and lists that have become too long, or go round in circles, are ended.

A small model may go on with a string or a list for as long as it is let. At a limit only the ids that end the string or
list are left, where the grammar allows any; where it does not (a pattern or a minimum asks for more) it has its way.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.around import Around
from chatlocal.engine.constraints.limits import Limits
from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens, per_tokens

# A string that ends in equal pieces is ended when these have so many characters together; the longest piece looked for.
_CIRCLE = 60
_LONGEST_PIECE = 120
# Characters of a number, which says no more from there on: a double has 17 digits.
_LONGEST_NUMBER = 40


class _List(NamedTuple):
    """An open bracket: `items` are the commas in it so far, `equal` how often the last whole item had come in a row.

    `begins` is where its item begins in the text, `last` the item before.
    """

    array: bool
    items: int
    begins: int
    last: bytes
    equal: int


class _Progress(NamedTuple):
    """Where in the text; `string` is where the string begins that it is in, behind its quote, else -1."""

    size: int
    string: int
    escaped: bool
    open: tuple[_List, ...]


class LengthLimits:
    """A grammar of JSON text within limits. `accepts` takes longer texts too."""

    def __init__(self, grammar: Grammar, tokens: Tokens, limits: Limits) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.tokens = tokens
        self.limits = limits
        self._grammar = grammar

    def accepts(self, text: str) -> bool:
        return self._grammar.accepts(text)

    def start(self) -> LimitedCursor:
        return LimitedCursor(self, self._grammar.start(), b"", _Progress(0, -1, False, ()))


class LimitedCursor(Around):
    """The progress after each id, and the text up to there."""

    def __init__(self, grammar: LengthLimits, cursor: Cursor, text: bytes, progress: _Progress) -> None:
        self._grammar = grammar
        self._cursor = cursor
        self._text = text
        self._history = [progress]

    def copy(self) -> LimitedCursor:
        return LimitedCursor(self._grammar, self._cursor.copy(), self._text, self._history[-1])

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)
        progress = self._history[-1]
        kept = allowed
        if progress.string >= 0 and not progress.escaped and self._too_long(progress.string):
            kept = kept & _of(self._grammar.tokens).ending_a_string
        if self._grammar.limits.characters is not None and len(self.place.number) >= _LONGEST_NUMBER:
            kept = kept & ~_of(self._grammar.tokens).digits
        if any(self._near(one) for one in progress.open):
            kept = kept.copy()
            texts = self._grammar.tokens.texts
            suspects = _of(self._grammar.tokens).commas[kept[_of(self._grammar.tokens).commas]]
            kept[[id for id in suspects.tolist() if self._after(progress, texts[id]) is None]] = False
        if kept.any():
            allowed[:] = kept

    def advance(self, id: int) -> bool:
        taken = self._cursor.advance(id)
        if taken:
            text = self._grammar.tokens.texts[id]
            self._text += text
            self._history.append(self._after(self._history[-1], text, limited=False) or self._history[-1])
        return taken

    def rollback(self, count: int) -> None:
        self._cursor.rollback(count)
        del self._history[len(self._history) - count :]
        self._text = self._text[: self._history[-1].size]

    def _near(self, one: _List) -> bool:
        """Whether a comma in this list may be too much."""
        limits = self._grammar.limits
        return one.array and (
            (limits.items is not None and one.items + 1 >= limits.items)
            or (limits.repeats is not None and one.equal + 1 >= limits.repeats)
        )

    def _too_long(self, begins: int) -> bool:
        limits = self._grammar.limits
        written = self._text[begins:]
        if limits.repeats is not None and _goes_round(written, limits.repeats):
            return True
        most = limits.characters
        # A character has a byte at least: short ones are not counted.
        return most is not None and len(written) >= most and len(written.decode(errors="ignore")) >= most

    def _after(self, progress: _Progress, text: bytes, *, limited: bool = True) -> _Progress | None:
        """The progress behind more text; None where that is `limited` and has a comma too many."""
        size, string, escaped, opened = progress
        whole = self._text[: progress.size] + text
        brackets = list(opened)
        for char in text:
            size += 1
            if string >= 0:
                if escaped:
                    escaped = False
                elif char == 0x22:
                    string = -1
                else:
                    escaped = char == 0x5C
            elif char == 0x22:
                string = size
            elif char in b"[{":
                brackets.append(_List(char == 0x5B, 0, size, b"", 0))
            elif char in b"]}" and brackets:
                brackets.pop()
            elif char == 0x2C and brackets and brackets[-1].array:
                of = brackets[-1]
                item = whole[of.begins : size - 1].strip()
                equal = of.equal + 1 if item == of.last and item[:1] in (b'"', b"{", b"[") else 1
                over = (limit := self._grammar.limits.items) is not None and of.items + 1 >= limit
                if limited and (over or ((most := self._grammar.limits.repeats) is not None and equal >= most)):
                    return None
                brackets[-1] = _List(True, of.items + 1, size, item, equal)
        return _Progress(size, string, escaped, tuple(brackets))


def _goes_round(text: bytes, repeats: int) -> bool:
    """Whether a text ends in so many equal pieces, and in _CIRCLE characters of them at least."""
    if len(text) < _CIRCLE:
        return False
    for size in range(1, min(_LONGEST_PIECE, len(text) // repeats) + 1):
        times = max(repeats, -(-_CIRCLE // size))
        if len(text) >= times * size and text.endswith(text[-size:] * times):
            return True
    return False


class _Kinds:
    """`ending_a_string` and `digits`, bool [tokens]: those that begin with the quote, or a digit. `commas`: ids with a
    comma in them.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.ending_a_string = np.array([text[:1] == b'"' for text in tokens.texts], dtype=np.bool_)
        self.digits = np.array([text[:1].isdigit() for text in tokens.texts], dtype=np.bool_)
        commas = (id for id, text in enumerate(tokens.texts) if _COMMA.search(text))
        self.commas = np.array(list(commas), dtype=np.int64)


# One outside of strings, or behind the quote that ends the string it began in.
_COMMA = re.compile(rb'^[^"]*,|"[^"]*,')
_of = per_tokens(_Kinds)
