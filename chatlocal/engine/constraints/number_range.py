"""JSON numbers kept within what a double-precision number can hold.

JSON has no largest number and a grammar cannot compare exponents, so under a grammar alone 1e999 is a number; read
back it is infinite, which is no JSON any more. And 0.99999999999999999 is below 1 and read back as 1. This layer stands
on a grammar of JSON text and bars the digit that would take a number out of range, and those that would give a fraction
more digits than a double keeps apart, unless nothing else can follow.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.around import Around
from chatlocal.engine.constraints.json_place import Place, after
from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens, per_tokens

# A token that can take a number out of range by itself: it has an exponent with digits.
_EXPONENT = re.compile(rb"[eE]\+?[0-9]")
# A number of so few characters without an exponent stays in range whatever plain digits one token adds.
_FEW = 150
# Decimal digits of which all can be told apart as doubles (C's DBL_DIG).
_DIGITS = 15
# A fraction of so few characters does not come to more digits by one token of digits.
_SHORT = 8


class NumberRange:
    """A grammar of JSON text whose numbers are finite. `accepts` takes fractions of any number of digits."""

    def __init__(self, grammar: Grammar, tokens: Tokens) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.texts = tokens.texts
        self._grammar = grammar
        self._with_exponent = _with_exponent(tokens)
        self._with_digit = _with_digit(tokens)

    def accepts(self, text: str) -> bool:
        return after(Place(), text.encode()) is not None and self._grammar.accepts(text)

    def start(self) -> RangeCursor:
        return RangeCursor(self._grammar.start(), self)

    def leaving(self, place: Place, allowed: NDArray[np.bool_]) -> list[int]:
        """The allowed ids that would take a number out of range."""
        near = b"e" in place.number or len(place.number) > _FEW
        suspects = self._with_digit if near else self._with_exponent
        return [id for id in suspects[allowed[suspects]].tolist() if after(place, self.texts[id]) is None]

    def too_fine(self, place: Place, allowed: NDArray[np.bool_]) -> list[int]:
        """The allowed ids that would give a fraction too many digits."""
        if b"." not in place.number or len(place.number) < _SHORT:
            return []
        suspects = self._with_digit[allowed[self._with_digit]].tolist()
        return [id for id in suspects if _digits(place.number, self.texts[id]) > _DIGITS]


@per_tokens
def _with_exponent(tokens: Tokens) -> NDArray[np.int64]:
    return np.array([id for id, text in enumerate(tokens.texts) if _EXPONENT.search(text)], dtype=np.int64)


@per_tokens
def _with_digit(tokens: Tokens) -> NDArray[np.int64]:
    """The ids whose text begins with a digit, or has an exponent."""
    found = (id for id, text in enumerate(tokens.texts) if text[:1].isdigit() or _EXPONENT.search(text))
    return np.array(list(found), dtype=np.int64)


class RangeCursor(Around):
    def __init__(self, cursor: Cursor, grammar: NumberRange, place: Place | None = None) -> None:
        self._cursor = cursor
        self._grammar = grammar
        self._places = [place or Place()]

    def copy(self) -> RangeCursor:
        return RangeCursor(self._cursor.copy(), self._grammar, self._places[-1])

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)
        allowed[self._grammar.leaving(self.place, allowed)] = False
        finer = self._grammar.too_fine(self.place, allowed)
        if finer:
            allowed[finer] = False
            if not (allowed.any() or self.complete):  # one value of an enum
                allowed[finer] = True

    def advance(self, id: int) -> bool:
        moved = after(self._places[-1], self._grammar.texts[id])
        if moved is None or not self._cursor.advance(id):
            return False
        self._places.append(moved)
        return True

    def rollback(self, count: int) -> None:
        self._cursor.rollback(count)
        del self._places[len(self._places) - count :]

    @property
    def place(self) -> Place:
        return self._places[-1]


def _digits(number: bytes, more: bytes) -> int:
    """Significant digits of a number that goes on with more text."""
    mantissa = re.split(rb"[^0-9.]", number.lstrip(b"-") + more, maxsplit=1)[0]
    return len(mantissa.replace(b".", b"").lstrip(b"0"))
