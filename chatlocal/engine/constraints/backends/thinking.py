"""A spec behind the model's thinking, which nothing constrains but the number of its tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.around import Around
from chatlocal.engine.constraints.backends import build
from chatlocal.engine.constraints.backends.free_text import FreeTextCursor, FreeTextGrammar
from chatlocal.engine.constraints.marker_search import Marker
from chatlocal.engine.constraints.protocol import Cursor, Grammar, GrammarBackend, Tokens
from chatlocal.engine.constraints.spec import Spec, inner


class GapGrammar:
    """A grammar that line breaks may stand before, as models write them behind their thinking."""

    def __init__(self, grammar: Grammar, tokens: Tokens) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.grammar = grammar
        self.breaks = [id for id, text in enumerate(tokens.texts) if text in (b"\n", b"\n\n")]

    def accepts(self, text: str) -> bool:
        return self.grammar.accepts(text) or self.grammar.accepts(text.lstrip("\n"))

    def start(self) -> GapCursor:
        return GapCursor(self, self.grammar.start())


class GapCursor(Around):
    """`_breaks` is how many tokens of line breaks stand before the text; at most two, so that there is an end."""

    def __init__(self, grammar: GapGrammar, cursor: Cursor) -> None:
        self._grammar = grammar
        self._cursor = cursor
        self._breaks = 0
        self._taken = 0

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)
        if self._open:
            allowed[self._grammar.breaks] = True

    def advance(self, id: int) -> bool:
        if self._cursor.advance(id):
            self._taken += 1
        elif self._open and id in self._grammar.breaks:
            self._breaks += 1
        else:
            return False
        return True

    def rollback(self, count: int) -> None:
        inside = min(count, self._taken)
        self._cursor.rollback(inside)
        self._taken -= inside
        self._breaks -= count - inside

    def forced_bytes(self) -> bytes:
        return b"" if self._open else self._cursor.forced_bytes()

    def copy(self) -> GapCursor:
        copied = GapCursor(self._grammar, self._cursor.copy())
        copied._breaks, copied._taken = self._breaks, self._taken
        return copied

    @property
    def _open(self) -> bool:
        return not self._taken and self._breaks < 2


class ThoughtGrammar(FreeTextGrammar):
    """A thought that has begun, up to the mark that closes it, and the answer behind it.

    `limit` is how many tokens it may have, the mark not counted; None for any number.
    """

    def __init__(self, closing: str, answer: Grammar, tokens: Tokens, limit: int | None) -> None:
        closed = Marker(closing.encode(), "anywhere")
        super().__init__((closed,), [GapGrammar(answer, tokens)], tokens, required=True)
        self.limit = limit

    def start(self) -> ThoughtCursor:
        return ThoughtCursor(self, self.limit)


class ThoughtCursor(FreeTextCursor):
    """Free text until the limit, and from there on what closes the thought.

    Tokens that turn out to be part of the mark are counted while that is open, so there may be fewer than the limit.
    """

    def __init__(self, grammar: ThoughtGrammar, limit: int | None) -> None:
        super().__init__(grammar)
        self._thought = grammar
        self._left = limit

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        if self._used_up:
            allowed[list(self.way_out())] = True
        else:
            super().fill(allowed)

    def advance(self, id: int) -> bool:
        return (not self._used_up or (id,) == self.way_out()) and super().advance(id)

    def copy(self) -> ThoughtCursor:
        copied = ThoughtCursor(self._thought, None if self._left is None else self._left - self._taken)
        copied._history = self._history[-1:]
        copied._cursor = None if self._cursor is None else self._cursor.copy()
        return copied

    @property
    def _taken(self) -> int:
        return len(self._history) - 1

    @property
    def _used_up(self) -> bool:
        return self._cursor is None and self._left is not None and self._taken >= self._left


class ThinkingGrammar:
    """`answer` at once or behind a thought; `opening` is the id that begins a thought, None when it has begun."""

    def __init__(self, answer: Grammar, thought: Grammar, opening: int | None) -> None:
        self.left_to_validation = answer.left_to_validation
        self.answer = answer
        self.thought = thought
        self.opening = opening

    def accepts(self, text: str) -> bool:
        return self.answer.accepts(text)

    def start(self) -> ThinkingCursor:
        return ThinkingCursor(self, self.answer.start())


class ThinkingCursor(Around):
    """The answer until a thought begins, and the thought with the answer behind it from there on."""

    def __init__(self, grammar: ThinkingGrammar, answer: Cursor) -> None:
        self._grammar = grammar
        self._answer = self._cursor = answer
        self._taken = 0

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)
        if not self._taken:
            allowed[self._grammar.opening] = True

    def advance(self, id: int) -> bool:
        if not self._taken and id == self._grammar.opening:
            self._cursor = self._grammar.thought.start()
            self._taken = 1
            return True
        taken = self._cursor.advance(id)
        self._taken += taken
        return taken

    def rollback(self, count: int) -> None:
        self._taken -= count
        if self._cursor is self._answer or self._taken:
            self._cursor.rollback(count)
        else:  # before the thought
            self._cursor = self._answer

    def forced_bytes(self) -> bytes:
        return self._cursor.forced_bytes() if self._taken else b""

    def copy(self) -> ThinkingCursor:
        copied = ThinkingCursor(self._grammar, self._answer.copy())
        if self._cursor is not self._answer:
            copied._cursor = self._cursor.copy()
        copied._taken = self._taken
        return copied

    def branches(self) -> Sequence[Cursor]:
        return self._answer.branches() if self._cursor is self._answer else (self,)


def _build(spec: Spec, tokens: Tokens) -> Grammar:
    source = json.loads(spec.source)
    answer = build(inner(source["spec"]), tokens)
    thought = ThoughtGrammar(source["closing"], answer, tokens, source.get("limit"))
    if source["open"]:
        return thought
    if isinstance(answer, FreeTextGrammar):
        # White space may stand before a thought, and its mark may be spelled: both would be free text otherwise.
        markers = (*answer.markers, Marker(source["opening"].encode(), "start"))
        return FreeTextGrammar(markers, [*answer.grammars, thought], tokens, answer.required)
    opening = tokens.named.get(source["opening"])
    if opening is None and source["opening"].encode() in tokens.texts:
        opening = tokens.texts.index(source["opening"].encode())
    return answer if opening is None else ThinkingGrammar(answer, thought, opening)


BACKEND = GrammarBackend("thinking", ("thinking",), _build)
