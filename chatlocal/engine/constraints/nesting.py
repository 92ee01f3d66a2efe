"""JSON text that does not nest deeper than readers follow.

A recursive schema allows any depth and a small model easily falls into opening one object in another for as long as it
is let; Pydantic's reader gives up at 200 brackets, Python's at about 1,000. This layer stands on a grammar of JSON
text: where many brackets are open, the only id that may follow is the next one of a short way out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.around import Around
from chatlocal.engine.constraints.endings import ending
from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens

# Half of what Pydantic's reader follows, so that there is room for what a schema demands on the way out.
MAX_OPEN = 100
# Ids in a way out from there.
_FARTHEST = 4096


class Nesting:
    """A grammar of JSON text that is written to some depth. `accepts` takes deeper texts too."""

    def __init__(self, grammar: Grammar, tokens: Tokens) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.tokens = tokens
        self._grammar = grammar

    def accepts(self, text: str) -> bool:
        return self._grammar.accepts(text)

    def start(self) -> NestingCursor:
        return NestingCursor(self._grammar.start(), self)


class NestingCursor(Around):
    """`_way` are ids that lead out of the depth, as far as they are known."""

    def __init__(self, cursor: Cursor, grammar: Nesting) -> None:
        self._cursor = cursor
        self._grammar = grammar
        self._way: list[int] = []

    def copy(self) -> NestingCursor:
        copied = NestingCursor(self._cursor.copy(), self._grammar)
        copied._way = self._way
        return copied

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        if len(self.place.open) >= MAX_OPEN and not self._cursor.complete:
            if not self._way:
                self._way = ending(self._cursor.copy(), self._grammar.tokens, _FARTHEST) or []
            if self._way:
                allowed[self._way[0]] = True
                return
        self._cursor.fill(allowed)

    def advance(self, id: int) -> bool:
        taken = self._cursor.advance(id)
        if taken:
            self._way = self._way[1:] if self._way[:1] == [id] else []
        return taken

    def rollback(self, count: int) -> None:
        self._cursor.rollback(count)
        self._way = []
