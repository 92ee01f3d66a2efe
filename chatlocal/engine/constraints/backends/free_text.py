"""Free text with markers in it, constrained from a marker on."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.backends import build
from chatlocal.engine.constraints.json_place import Place
from chatlocal.engine.constraints.marker_search import Marker, MarkerSearch, Progress
from chatlocal.engine.constraints.protocol import Cursor, Grammar, GrammarBackend, Tokens, left_by
from chatlocal.engine.constraints.spec import Spec, inner


class FreeTextGrammar:
    """`grammars[i]` is what follows marker i. With `required` the text does not end before a marker."""

    def __init__(self, markers: tuple[Marker, ...], grammars: list[Grammar], tokens: Tokens, required: bool) -> None:
        self.left_to_validation = left_by(grammars)
        self.markers = markers
        self.search = MarkerSearch(markers, tokens)
        self.grammars = grammars
        self.required = required

    def accepts(self, text: str) -> bool:
        data = text.encode()
        progress = Progress()
        for place in range(len(data)):
            progress, found = self.search.step(progress, data[place : place + 1])
            if found is not None:
                return self.grammars[found].accepts(data[place + 1 :].decode(errors="replace"))
        return not self.required

    def start(self) -> FreeTextCursor:
        return FreeTextCursor(self)


class FreeTextCursor(Cursor):
    """After each id the progress of the free text, or None where a grammar has taken over."""

    def __init__(self, grammar: FreeTextGrammar) -> None:
        self._grammar = grammar
        self._history: list[Progress | None] = [Progress()]
        self._cursor: Cursor | None = None

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        if self._cursor is not None:
            self._cursor.fill(allowed)
        elif (progress := self._history[-1]) is not None:
            self._grammar.search.allowed(progress, allowed)

    def advance(self, id: int) -> bool:
        if self._cursor is not None:
            taken = self._cursor.advance(id)
            if taken:
                self._history.append(None)
            return taken
        progress = self._history[-1]
        step = None if progress is None else self._grammar.search.advance(progress, id)
        if step is None:
            return False
        after, found = step
        self._history.append(after)
        if found is not None:
            self._cursor = self._grammar.grammars[found].start()
        return True

    def rollback(self, count: int) -> None:
        gone = self._history[len(self._history) - count :]
        del self._history[len(self._history) - count :]
        inside = sum(progress is None for progress in gone)
        if inside < count:
            self._cursor = None
        elif self._cursor is not None:
            self._cursor.rollback(inside)

    def copy(self) -> FreeTextCursor:
        copied = FreeTextCursor(self._grammar)
        copied._history = self._history[-1:]
        copied._cursor = None if self._cursor is None else self._cursor.copy()
        return copied

    def way_out(self) -> tuple[int, ...]:
        """Towards the first marker."""
        if self._cursor is not None:
            return self._cursor.way_out()
        progress = self._history[-1]
        if progress is None or not self._grammar.markers:
            return ()
        known = self._grammar.search.towards(0, progress)
        return () if known is None else (known,)

    @property
    def place(self) -> Place:
        return Place() if self._cursor is None else self._cursor.place

    def forced_bytes(self) -> bytes:
        return b"" if self._cursor is None else self._cursor.forced_bytes()

    @property
    def complete(self) -> bool:
        return not self._grammar.required if self._cursor is None else self._cursor.complete

    @property
    def exhausted(self) -> bool:
        return self._cursor is not None and self._cursor.exhausted


def _build(spec: Spec, tokens: Tokens) -> FreeTextGrammar:
    source = json.loads(spec.source)
    markers = tuple(Marker(each["marker"].encode(), each["place"]) for each in source["openings"])
    grammars = [build(inner(each["spec"]), tokens) for each in source["openings"]]
    return FreeTextGrammar(markers, grammars, tokens, source["required"])


BACKEND = GrammarBackend("free_text", ("free_text",), _build)
