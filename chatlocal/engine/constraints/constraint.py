"""A compiled constraint, and one text that follows it: where every backend gets the same ends and the same bans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import torch

from chatlocal.engine.constraints.endings import ending, shortest
from chatlocal.engine.constraints.json_place import Place
from chatlocal.engine.constraints.protocol import Cursor, Grammar, Tokens
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema

# Tokens up to which the shortest text is looked for.
_FARTHEST = 4096


class Constraint:
    """A spec compiled for one tokenizer; shared by any number of requests and threads.

    `left_to_validation` names what the grammar does not enforce, such as "uniqueItems at /properties/tags": check the
    finished text with `validation.check`. `vocab_size` is the width of the masks, `end_ids` the ids that end a text.
    """

    def __init__(self, grammar: Grammar, tokens: Tokens, vocab_size: int, end_ids: frozenset[int]) -> None:
        self.left_to_validation = grammar.left_to_validation
        self.vocab_size = vocab_size
        self.end_ids = end_ids
        self._grammar = grammar
        self._tokens = tokens

    def accepts(self, text: str) -> bool:
        """Whether the whole text follows the grammar: the spec's separators, keys in declared order."""
        return self._grammar.accepts(text)

    @cached_property
    def shortest(self) -> list[int] | None:
        """The ids of a shortest text, or of one that is nearly so, without an end id; None where none was found."""
        start = self._grammar.start()
        return [] if start.complete else shortest(start, self._tokens, _FARTHEST)

    def start(self) -> ConstraintState:
        """A fresh state, before the first id. Use each state from one thread at a time."""
        return ConstraintState(self._grammar.start(), self._tokens, self.vocab_size, self.end_ids)


class ConstraintState:
    """One text as it grows, id by id. `tokens` are those that it may be written in."""

    def __init__(self, cursor: Cursor, tokens: Tokens, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._cursor = cursor
        self.tokens = tokens
        self._width = vocab_size
        self._ends = end_ids
        self._ids: list[int] = []

    def mask(self) -> torch.Tensor:
        """Which ids may follow: bool [vocab_size] on the CPU, a new tensor at every call.

        End ids are allowed exactly where the text may end; control tokens and ids without a token never are.
        UnsupportedSchema when the tokenizer has no token to go on with and the text may not end here.
        """
        allowed = np.zeros(max(self._width, len(self.tokens.texts)), dtype=np.bool_)
        if not self.done:
            self._cursor.fill(allowed[: len(self.tokens.texts)])
        mask = allowed[: self._width]
        if self.may_end:
            mask[list(self._ends)] = True
        elif not mask.any():
            raise UnsupportedSchema(
                "vocabulary", "", f"the tokenizer has no token that can follow {self._tail()!r} in this grammar"
            )
        return torch.from_numpy(mask)

    def advance(self, id: int) -> None:
        """Take the next id. UnsupportedInput, and no change, when it cannot follow."""
        if id in self._ends:
            taken = self.may_end and not self._ended
        else:
            # the mask may be narrower than what fits: at forced text it holds the tokenizer's own way to write it
            usable = 0 <= id < min(self._width, len(self.tokens.texts))
            taken = usable and not self._ended and self._cursor.advance(id)
        if not taken:
            raise UnsupportedInput(f"Token {id} cannot follow {self._tail()!r} under this constraint.")
        self._ids.append(id)

    def rollback(self, count: int) -> None:
        """Take back the last `count` ids. UnsupportedInput when there are not so many."""
        if not 0 <= count <= len(self._ids):
            raise UnsupportedInput(f"Cannot take back {count} ids of {len(self._ids)}.")
        ended = 1 if count and self._ended else 0
        del self._ids[len(self._ids) - count :]
        if count > ended:
            self._cursor.rollback(count - ended)

    def copy(self) -> ConstraintState:
        """Another state at this place, which need not go back behind it."""
        copied = ConstraintState(self._cursor.copy(), self.tokens, self._width, self._ends)
        copied._ids = self._ids[-1:]
        return copied

    def ending(self, limit: int) -> list[int] | None:
        """Ids that bring the text to an end, few if not always the fewest; None where none were found within `limit`.

        The end id is not among them.
        """
        return [] if self.may_end else ending(self._cursor.copy(), self.tokens, limit)

    def forced_bytes(self) -> bytes:
        """The bytes that must come next, as far as only one text is possible; b"" where there is a choice."""
        return b"" if self.done else self._cursor.forced_bytes()

    @property
    def ids(self) -> Sequence[int]:
        """The ids taken so far; a copy knows the last one only."""
        return self._ids

    @property
    def steps_to_finish(self) -> int | None:
        """How many ids the shortest way to an end that was found has, an end id not counted; None where none was."""
        way = self.ending(_FARTHEST)
        return None if way is None else len(way)

    @property
    def place(self) -> Place:
        """Where in JSON text it stands; the start of one where the text is no JSON."""
        return self._cursor.place

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids that end a text."""
        return self._ends

    @property
    def done(self) -> bool:
        """Nothing more can follow, an end id apart: the grammar is over, or an end id was taken."""
        return self._ended or self._cursor.exhausted

    @property
    def may_end(self) -> bool:
        """The text so far is a whole one; the mask allows the end ids too."""
        return self._ended or self._cursor.complete

    @property
    def _ended(self) -> bool:
        return bool(self._ids) and self._ids[-1] in self._ends

    def _tail(self) -> str:
        text = b"".join(self.tokens.texts[id] for id in self._ids[-16:] if id not in self._ends)
        return text.decode(errors="backslashreplace")


def check_end_ids(end_ids: Iterable[int], vocab_size: int) -> frozenset[int]:
    """UnsupportedInput when there is none, or one that the logits do not have."""
    ends = frozenset(end_ids)
    if not ends or not all(0 <= id < vocab_size for id in ends):
        raise UnsupportedInput(
            f"A constraint needs end ids between 0 and {vocab_size - 1}, got {sorted(ends)}: give end_ids."
        )
    return ends
