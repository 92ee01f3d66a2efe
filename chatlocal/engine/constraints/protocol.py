"""What a grammar backend is, and what stands on it.

A backend file builds a Grammar for a spec and a set of tokens. It knows nothing of end ids, control tokens or padded
logits: `constraint.py` adds those to every backend alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.json_place import Place
from chatlocal.engine.constraints.spec import Spec
from chatlocal.engine.errors import UnsupportedSchema


class TooComplex(UnsupportedSchema):
    """A backend's limits on time or size are exceeded: the next backend may do it."""

    def __init__(self, detail: str) -> None:
        super().__init__("complexity", "", detail)

    def __reduce__(self) -> tuple[type[TooComplex], tuple[str]]:  # type: ignore[override]
        return type(self), (self.detail,)


@dataclass(frozen=True, eq=False)  # no slots: backends keep what they derive from it for as long as it lives
class Tokens:
    """The tokens that a grammar may use: `texts[id]`, b"" for an id that it must not use as text.

    `named` are control tokens: a grammar that asks for one by its name may use it.

    `encode(text)` is how the tokenizer writes a text in these ids; where the vocabulary cannot spell all of it, the
    ids of the beginning that it can.
    """

    texts: tuple[bytes, ...]
    encode: Callable[[str], list[int]]
    named: Mapping[str, int] = field(default_factory=dict)


class Cursor(Protocol):
    """A place in a text that follows the grammar. Used by one thread at a time.

    A backend's cursor is a subclass: the last three have an answer for cursors that know no better.
    """

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        """Set True at each id that may follow; `allowed` comes as False, one entry for each of the tokens."""

    def advance(self, id: int) -> bool:
        """Take an id. False, and no change, when it cannot follow."""

    def rollback(self, count: int) -> None:
        """Take back the last `count` ids."""

    def forced_bytes(self) -> bytes:
        """What must follow, as far as it is certain."""

    def copy(self) -> Cursor:
        """Another cursor at this place, which need not go back behind it."""

    def way_out(self) -> tuple[int, ...]:
        """The ids to take next to come to an end soon, where the cursor knows some."""
        return ()

    def branches(self) -> Sequence[Cursor]:
        """Cursors for each of the texts that it follows side by side; mostly that is itself."""
        return (self,)

    @property
    def place(self) -> Place:
        """Where in JSON text it stands; the start of one where the text is no JSON."""
        return Place()

    @property
    def complete(self) -> bool:
        """The text so far is a whole one."""

    @property
    def exhausted(self) -> bool:
        """Nothing more can follow."""


class Grammar(Protocol):
    """A spec compiled for a set of tokens. Used by any number of threads."""

    left_to_validation: tuple[str, ...]

    def accepts(self, text: str) -> bool:
        """Whether the whole text follows the grammar."""

    def start(self) -> Cursor:
        """The place before the first id."""


@dataclass(frozen=True, slots=True)
class GrammarBackend:
    """One way to compile specs. `kinds` are those it can do, in the order of the kinds it does best.

    `build` raises UnsupportedSchema for what it cannot enforce, and TooComplex where another backend may do better.
    """

    name: str
    kinds: Sequence[str]
    build: Callable[[Spec, Tokens], Grammar]


T = TypeVar("T")


def per_tokens(make: Callable[[Tokens], T]) -> Callable[[Tokens], T]:
    """What `make` derives from tokens, made once for each Tokens and kept for as long as those live."""
    known: WeakKeyDictionary[Tokens, T] = WeakKeyDictionary()

    def made(tokens: Tokens) -> T:
        found = known.get(tokens)
        if found is None:
            found = known[tokens] = make(tokens)
        return found

    return made


def left_by(grammars: Sequence[Grammar]) -> tuple[str, ...]:
    """What any of these grammars leaves to validation."""
    return tuple(dict.fromkeys(one for grammar in grammars for one in grammar.left_to_validation))
