"""One of several specs: all that still fit are followed side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.backends import build
from chatlocal.engine.constraints.json_place import Place
from chatlocal.engine.constraints.protocol import Cursor, Grammar, GrammarBackend, Tokens, left_by
from chatlocal.engine.constraints.spec import Spec, inner


class EitherGrammar:
    """The texts of any of these grammars."""

    def __init__(self, grammars: list[Grammar]) -> None:
        self.left_to_validation = left_by(grammars)
        self._grammars = grammars

    def accepts(self, text: str) -> bool:
        return any(grammar.accepts(text) for grammar in self._grammars)

    def start(self) -> EitherCursor:
        return EitherCursor([grammar.start() for grammar in self._grammars])


class EitherCursor(Cursor):
    """The cursors that follow the text so far, after each id."""

    def __init__(self, cursors: list[Cursor]) -> None:
        self._alive = [cursors]

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        for cursor in self._alive[-1]:
            if not cursor.exhausted:
                mine = np.zeros_like(allowed)
                cursor.fill(mine)
                allowed |= mine

    def advance(self, id: int) -> bool:
        alive = [cursor for cursor in self._alive[-1] if cursor.advance(id)]
        if alive:
            self._alive.append(alive)
        return bool(alive)

    def rollback(self, count: int) -> None:
        # Those that dropped out on the way stand where they dropped out: there they are where the others come back to.
        for _ in range(count):
            for cursor in self._alive.pop():
                cursor.rollback(1)

    def copy(self) -> EitherCursor:
        return EitherCursor([cursor.copy() for cursor in self._alive[-1]])

    def way_out(self) -> tuple[int, ...]:
        return next((ids for cursor in self._alive[-1] if (ids := cursor.way_out())), ())

    def branches(self) -> Sequence[Cursor]:
        return [branch for cursor in self._alive[-1] for branch in cursor.branches()]

    @property
    def place(self) -> Place:
        return self._alive[-1][0].place

    def forced_bytes(self) -> bytes:
        if self.complete:  # the text may end here
            return b""
        first, *others = (cursor.forced_bytes() for cursor in self._alive[-1])
        size = len(first)
        while not all(text.startswith(first[:size]) for text in others):
            size -= 1
        return first[:size]

    @property
    def complete(self) -> bool:
        return any(cursor.complete for cursor in self._alive[-1])

    @property
    def exhausted(self) -> bool:
        return all(cursor.exhausted for cursor in self._alive[-1])


def _build(spec: Spec, tokens: Tokens) -> EitherGrammar:
    return EitherGrammar([build(inner(fields), tokens) for fields in json.loads(spec.source)])


BACKEND = GrammarBackend("either", ("either",), _build)
