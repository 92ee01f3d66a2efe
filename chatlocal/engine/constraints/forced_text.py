"""Text that must come next, written as the tokenizer writes it: ids that no forward pass has to choose.

The bytes that a grammar forces are a fact; the ids that spell them are not. Three rules choose them:

1. The forced bytes are tokenized together with the text of the last few ids, so that a token across the border is
   found: behind `"` the text `, "age": ` makes `",` of that quote. The ids before it are then taken back.
2. The last of the new ids are left out again where a token that the grammar allows would reach over the end of the
   forced text: behind `"name": ` a model may want ` "` or ` ""`. It chooses by itself there (token healing), and the
   ids left out are only `likely`.
3. Where the text is over, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.constraint import ConstraintState
from chatlocal.engine.constraints.protocol import Tokens, per_tokens
from chatlocal.engine.constraints.token_trie import trie_of
from chatlocal.engine.errors import UnsupportedInput

# Ids that may be written anew, and bytes at the end of the forced text where a longer token is looked for.
_TAIL = 4
_REACH = 16


@dataclass(frozen=True, slots=True)
class Forced:
    """`ids` stand in the place of the ids `replaced` and go on behind them; `likely` are ids that may come next."""

    replaced: tuple[int, ...]
    ids: tuple[int, ...]
    likely: tuple[int, ...]

    @property
    def grown(self) -> int:
        """How many ids more the text has than before."""
        return len(self.ids) - len(self.replaced)


def advance_forced(state: ConstraintState, replaceable: int | None = None) -> Forced | None:
    """Move a state on over the text that must come next; None, and no change, where there is none.

    `replaceable` is how many of the last ids may be written anew, None for as many as help.
    """
    text = state.forced_bytes().decode(errors="ignore")
    if not text:
        return None
    tail = _tail(state, _TAIL if replaceable is None else min(replaceable, _TAIL))
    return _written(state, tail, text) or (_written(state, (), text) if tail else None)


def take_back(state: ConstraintState, forced: Forced) -> None:
    """Undo `advance_forced`."""
    state.rollback(len(forced.ids))
    for id in forced.replaced:
        state.advance(id)


def _written(state: ConstraintState, tail: tuple[int, ...], text: str) -> Forced | None:
    spelled = state.tokens.texts
    before = b"".join(spelled[id] for id in tail)
    ids = state.tokens.encode(before.decode() + text)
    if b"".join(spelled[id] for id in ids) != before + text.encode():
        return None
    same = _common(tail, ids)
    forced = Forced(tail[same:], tuple(ids[same:]), ())
    if not _move(state, forced):
        return None
    kept = len(forced.ids) if state.done else len(forced.ids) - _unsettled(state, forced.ids, text.encode())
    state.rollback(len(forced.ids) - kept)
    shorter = Forced(forced.replaced, forced.ids[:kept], forced.ids[kept:])
    taken_back = sum(len(spelled[id]) for id in shorter.replaced)
    if sum(len(spelled[id]) for id in shorter.ids) < taken_back:  # less is certain than was written already
        take_back(state, shorter)
        return None
    return shorter if shorter.ids or shorter.likely else None


def _tail(state: ConstraintState, most: int) -> tuple[int, ...]:
    """The last ids, as many as the tokenizer would write the same way."""
    texts = state.tokens.texts
    for first in range(max(0, len(state.ids) - most), len(state.ids)):
        ids = tuple(state.ids[first:])
        if not all(0 <= id < len(texts) and texts[id] for id in ids):
            continue
        try:
            text = b"".join(texts[id] for id in ids).decode()
        except UnicodeDecodeError:
            continue
        if tuple(state.tokens.encode(text)) == ids:
            return ids
    return ()


def _move(state: ConstraintState, forced: Forced) -> bool:
    """Put the new ids in the place of the replaced ones; False, and no change, where they cannot be read so."""
    state.rollback(len(forced.replaced))
    for taken, id in enumerate(forced.ids):
        try:
            state.advance(id)
        except UnsupportedInput:
            state.rollback(taken)
            for old in forced.replaced:
                state.advance(old)
            return False
    return True


def _unsettled(state: ConstraintState, ids: Sequence[int], text: bytes) -> int:
    """How many of the last ids, behind which the state stands, a longer token that is allowed could replace.

    Allowed as far as the first byte behind the forced text tells: one id too many is chosen by the model then.
    """
    trie = trie_of(state.tokens)
    going_on = _first_bytes(state)
    for place in range(max(0, len(text) - _REACH), len(text)):
        if going_on[trie.following(text[place:])].any():
            break
    else:
        return 0
    left, count = len(text) - place, 0
    while left > 0 and count < len(ids):
        count += 1
        left -= len(state.tokens.texts[ids[-count]])
    return count


def _first_bytes(state: ConstraintState) -> NDArray[np.bool_]:
    """Bool [256]: the bytes with which an allowed token begins."""
    first = _beginnings(state.tokens)
    allowed = np.flatnonzero(state.mask().numpy())
    found = np.zeros(257, dtype=np.bool_)
    found[first[allowed[allowed < len(first)]]] = True
    return found[:256]


@per_tokens
def _beginnings(tokens: Tokens) -> NDArray[np.int64]:
    """The first byte of each token, 256 for one without text."""
    return np.array([text[0] if text else 256 for text in tokens.texts], dtype=np.int64)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
