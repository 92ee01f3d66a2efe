"""Texts that are known to lead to an end: of a JSON value, of a string, of what stands around the JSON.

A grammar alone does not say which way is short, and where all the ways of a recursive schema look alike from the
outside (`{"op"` or `{"value"`), one that is chosen step by step may never end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import TypeAlias

from chatlocal.engine.constraints.around import Around
from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens, per_tokens

# Tokens that are tried at one place before all of them are given up.
_MOST_TRIED = 1000

# Texts as a tree of their ids, None where one ends.
_Ways: TypeAlias = "dict[int | None, _Ways | None]"


class KnownTexts:
    """A grammar of JSON text whose cursors know ways out.

    `strings` are texts of the forms that strings in it may have, `values` the shortest JSON texts of its kinds of
    values, `closings` texts and marks that end what is not JSON in it. One that does not fit where it is tried is
    passed over.
    """

    def __init__(
        self,
        grammar: Grammar,
        tokens: Tokens,
        strings: Iterable[str] = (),
        values: Iterable[str] = (),
        closings: Iterable[str] = (),
    ) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.behind_value = _behind_value(tokens)
        self.closing = [id for id in self.behind_value if tokens.texts[id] == b"]"]
        self._grammar = grammar
        self._tokens = tokens
        self._strings = tuple(dict.fromkeys(("", *strings)))
        self._values = tuple(dict.fromkeys(values))
        self._closings = tuple(closings)

    @cached_property
    def strings(self) -> _Ways:
        """The rest of a string behind its quote, for each form that strings may have; the empty one comes first."""
        return _ways(self._ids(json.dumps(text, ensure_ascii=False)[1:]) for text in self._strings)

    @cached_property
    def values(self) -> _Ways:
        """The ids of each value, the fewest first."""
        return _ways(sorted(map(self._ids, self._values), key=len))

    @cached_property
    def closings(self) -> _Ways:
        """The ids of each closing."""
        named = self._tokens.named
        return _ways((named[text],) if text in named else self._ids(text) for text in self._closings)

    def accepts(self, text: str) -> bool:
        return self._grammar.accepts(text)

    def start(self) -> KnownTextsCursor:
        return KnownTextsCursor(self._grammar.start(), self)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokens.encode(text))


class KnownTextsCursor(Around):
    def __init__(self, cursor: Cursor, grammar: KnownTexts) -> None:
        self._cursor = cursor
        self._grammar = grammar

    def copy(self) -> KnownTextsCursor:
        return KnownTextsCursor(self._cursor.copy(), self._grammar)

    def way_out(self) -> tuple[int, ...]:
        """What closes a text that is no JSON; a whole value where one begins, and in a string a text of its form."""
        place = self.place
        closing = self._that_fits(self._grammar.closings)
        if closing:
            return closing
        if place.begins_string:
            known = self._that_fits(self._grammar.strings)
            return known if len(known) > 1 else ()  # an empty string is ended like any other
        if not place.begins_value or self._fits(self._grammar.closing):  # an array may stay empty
            return ()
        return self._that_fits(self._grammar.values, whole=True)

    def _that_fits(self, ways: _Ways, whole: bool = False) -> tuple[int, ...]:
        """One of these ways that can be followed from here, to where a value ends if that is asked for."""
        if not ways:
            return ()
        tried = 0
        waiting: list[tuple[Cursor, _Ways, tuple[int, ...]]] = [(self._cursor, ways, ())]
        while waiting and tried < _MOST_TRIED:
            cursor, following, so_far = waiting.pop()
            if None in following and not (whole and self._goes_on(cursor)):
                return so_far
            further = []
            for id, after in following.items():
                if id is not None and after is not None:
                    tried += 1
                    there = cursor.copy()
                    if there.advance(id):
                        further.append((there, after, (*so_far, id)))
            waiting += reversed(further)
        return ()

    def _goes_on(self, cursor: Cursor) -> bool:
        """Whether a value is not over yet, such as a number of which these were the first digits."""
        return not (cursor.complete or any(cursor.copy().advance(id) for id in self._grammar.behind_value))

    def _fits(self, ids: Iterable[int]) -> bool:
        return any(self._cursor.copy().advance(id) for id in ids)


def _ways(texts: Iterable[tuple[int, ...]]) -> _Ways:
    root: _Ways = {}
    for ids in texts:
        node = root
        for id in ids:
            following = node.setdefault(id, {})
            assert following is not None  # None is under None alone
            node = following
        if ids:
            node[None] = None
    return root


@per_tokens
def _behind_value(tokens: Tokens) -> list[int]:
    return [id for id, text in enumerate(tokens.texts) if text in (b",", b"]", b"}")]
