"""JSON numbers kept within what a double-precision number can hold.

JSON has no largest number and a grammar cannot compare exponents, so under a grammar alone 1e999 is a number; read
back it is infinite, which is no JSON any more. This layer stands on a grammar of JSON text and bars the digit that
would take a number out of range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens

_DIGITS = b"0123456789"
_NUMBER = _DIGITS + b".eE+-"
# A token that can take a number out of range by itself: it has an exponent with digits.
_EXPONENT = re.compile(rb"[eE]\+?[0-9]")
# A number of so few characters without an exponent stays in range whatever plain digits one token adds.
_FEW = 150


class NumberRange:
    """A grammar of JSON text whose numbers are finite."""

    def __init__(self, grammar: Grammar, tokens: Tokens) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.texts = tokens.texts
        self._grammar = grammar
        self._with_exponent = self._ids(lambda text: _EXPONENT.search(text) is not None)
        self._with_digit = self._ids(lambda text: text[:1].isdigit() or _EXPONENT.search(text) is not None)

    def accepts(self, text: str) -> bool:
        return _after(_Place(), text.encode()) is not None and self._grammar.accepts(text)

    def start(self) -> RangeCursor:
        return RangeCursor(self._grammar.start(), self)

    def leaving(self, place: _Place, allowed: NDArray[np.bool_]) -> list[int]:
        """The allowed ids that would take a number out of range."""
        near = b"e" in place.number or len(place.number) > _FEW
        suspects = self._with_digit if near else self._with_exponent
        return [id for id in suspects[allowed[suspects]].tolist() if _after(place, self.texts[id]) is None]

    def _ids(self, wanted: Callable[[bytes], bool]) -> NDArray[np.int64]:
        return np.array([id for id, text in enumerate(self.texts) if wanted(text)], dtype=np.int64)


class RangeCursor:
    def __init__(self, cursor: Cursor, grammar: NumberRange) -> None:
        self._cursor = cursor
        self._grammar = grammar
        self._places = [_Place()]

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)
        allowed[self._grammar.leaving(self._places[-1], allowed)] = False

    def advance(self, id: int) -> bool:
        after = _after(self._places[-1], self._grammar.texts[id])
        if after is None or not self._cursor.advance(id):
            return False
        self._places.append(after)
        return True

    def rollback(self, count: int) -> None:
        self._cursor.rollback(count)
        del self._places[len(self._places) - count :]

    def forced_bytes(self) -> bytes:
        return self._cursor.forced_bytes()

    @property
    def complete(self) -> bool:
        return self._cursor.complete

    @property
    def exhausted(self) -> bool:
        return self._cursor.exhausted


class _Place(NamedTuple):
    """Where in JSON text: inside a string or not, and the characters of the number that is being written."""

    quoted: bool = False
    escaped: bool = False
    number: bytes = b""


def _after(place: _Place, text: bytes) -> _Place | None:
    """The place after more text; None when a number in it is out of range."""
    quoted, escaped, number = place
    for char in text:
        if quoted:
            quoted, escaped = escaped or char != 0x22, not escaped and char == 0x5C
        elif char in _NUMBER:
            number += bytes([char]).lower()
            if char in _DIGITS and not math.isfinite(_value(number)):
                return None
        else:
            quoted, number = char == 0x22, b""
    return _Place(quoted, escaped, number)


def _value(number: bytes) -> float:
    try:
        return float(number)
    except ValueError:  # text that the grammar refuses as well
        return 0.0
