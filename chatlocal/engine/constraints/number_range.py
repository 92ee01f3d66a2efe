"""JSON numbers kept within what a double-precision number can hold.

JSON has no largest number and a grammar cannot compare exponents, so under a grammar alone 1e999 is a number; read
back it is infinite, which is no JSON any more. This layer stands on a grammar of JSON text and bars the digit that
would take a number out of range.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.json_place import Place, after
from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens

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
        return after(Place(), text.encode()) is not None and self._grammar.accepts(text)

    def start(self) -> RangeCursor:
        return RangeCursor(self._grammar.start(), self)

    def leaving(self, place: Place, allowed: NDArray[np.bool_]) -> list[int]:
        """The allowed ids that would take a number out of range."""
        near = b"e" in place.number or len(place.number) > _FEW
        suspects = self._with_digit if near else self._with_exponent
        return [id for id in suspects[allowed[suspects]].tolist() if after(place, self.texts[id]) is None]

    def _ids(self, wanted: Callable[[bytes], bool]) -> NDArray[np.int64]:
        return np.array([id for id, text in enumerate(self.texts) if wanted(text)], dtype=np.int64)


class RangeCursor(Cursor):
    def __init__(self, cursor: Cursor, grammar: NumberRange, place: Place | None = None) -> None:
        self._cursor = cursor
        self._grammar = grammar
        self._places = [place or Place()]

    def copy(self) -> RangeCursor:
        return RangeCursor(self._cursor.copy(), self._grammar, self._places[-1])

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)
        allowed[self._grammar.leaving(self._places[-1], allowed)] = False

    def advance(self, id: int) -> bool:
        moved = after(self._places[-1], self._grammar.texts[id])
        if moved is None or not self._cursor.advance(id):
            return False
        self._places.append(moved)
        return True

    def rollback(self, count: int) -> None:
        self._cursor.rollback(count)
        del self._places[len(self._places) - count :]

    def forced_bytes(self) -> bytes:
        return self._cursor.forced_bytes()

    def way_out(self) -> tuple[int, ...]:
        return self._cursor.way_out()

    @property
    def place(self) -> Place:
        return self._places[-1]

    @property
    def complete(self) -> bool:
        return self._cursor.complete

    @property
    def exhausted(self) -> bool:
        return self._cursor.exhausted
