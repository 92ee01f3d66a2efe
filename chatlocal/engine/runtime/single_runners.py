"""One sequence in each forward, for models whose caches cannot be shared row by row (sliding windows, states, ...)."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from transformers import DynamicCache

from chatlocal.engine.runtime.causal_model import CausalModel
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slots import common_prefix

# How many caches of sequences that have ended are held for others that begin alike.
_MOST_HELD = 4


class PlainRunner:
    """A Runner that gives each sequence a cache of transformers' making.

    `in_pieces` is False for models that carry a state along: many of them forget it where a prompt is read in pieces.
    `takes_back`: every layer keeps all keys and values. Only then a sequence can start from what another one has read.
    """

    shares = False
    ragged = False

    def __init__(self, model: Any, *, in_pieces: bool, takes_back: bool) -> None:
        self.in_pieces = self.several = in_pieces
        self.takes_back = self.reuses = takes_back
        self.position_bytes = 0
        self._model = CausalModel(model)
        self._caches: dict[Sequence, Any] = {}
        self._held: list[tuple[list[int], Any]] = []
        """The ids and the cache of each sequence that has ended, the least recently used first."""
        self._positions = sys.maxsize

    def allot(self, positions: int, running: int, *, reuse: bool) -> None:
        self._positions = positions
        self.reuses = reuse and self.takes_back

    def fits(self, lengths: list[int]) -> bool:
        return sum(lengths) <= self._positions

    def shared(self, ids: list[int]) -> int:
        return self._longest(ids)[1]

    def start(self, sequence: Sequence) -> None:
        source, length = self._longest(sequence.ids)
        sequence.cached = length
        if source is None:
            return
        held = next((one for one in self._held if one[1] is source), None)
        if held is not None and len(held[0]) == length:
            self._held.remove(held)
        else:
            source = copy.deepcopy(source)
            if held is not None:  # used last
                self._held.remove(held)
                self._held.append(held)
        if surplus := int(source.get_seq_length()) - length:
            source.crop(-surplus)
        self._caches[sequence] = source
        self._make_room()

    def forward(self, work: list[tuple[Sequence, int]]) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        cache = self._caches.get(sequence)
        if cache is None:
            cache = self._caches[sequence] = DynamicCache(config=self._model.model.config)
        elif self.takes_back and (surplus := int(cache.get_seq_length()) - sequence.cached):
            cache.crop(-surplus)
        self._make_room(count)
        ids = torch.tensor([sequence.next_ids(count)], device=self._model.device)
        try:
            logits = _last(self._model, ids, sequence.rows(count), cache)
        except BaseException:  # some layers may have the new keys and some not
            del self._caches[sequence]
            sequence.cached = 0
            raise
        sequence.cached += count
        if not self.position_bytes and self.takes_back:
            self.position_bytes = _bytes(cache) // sequence.cached
        return logits

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        cache = self._caches.pop(sequence, None)
        ids = sequence.ids[: sequence.cached]
        if cache is not None and keep and self.reuses and ids:
            self._held.append((ids, cache))
            self._make_room()

    def relieve(self) -> bool:
        held, self._held = self._held, []
        return bool(held)

    def close(self) -> None:
        self._caches.clear()
        self._held.clear()

    def _longest(self, ids: list[int]) -> tuple[Any, int]:
        """The cache that shares most of the first ids, and how many, all but one at most."""
        if not self.reuses:
            return None, 0
        running = [(one.ids[: one.cached], cache) for one, cache in self._caches.items()]
        best: tuple[Any, int] = (None, 0)
        for valid, cache in [*running, *self._held]:
            length = min(common_prefix(ids, valid), len(ids) - 1)
            if length > best[1]:
                best = (cache, length)
        return best

    def _make_room(self, more: int = 0) -> None:
        """Give up caches that are held while there are too many, or too little room for so many more positions."""
        used = more + sum(sequence.cached for sequence in self._caches)
        while self._held and (
            len(self._held) > _MOST_HELD or used + sum(len(ids) for ids, _ in self._held) > self._positions
        ):
            del self._held[0]


class RereadingRunner:
    """A Runner without any cache: each new id costs a forward over all ids before it. Right for every causal model."""

    shares = False
    ragged = False
    in_pieces = False
    several = True
    takes_back = True
    reuses = False
    position_bytes = 0

    def __init__(self, model: Any) -> None:
        self._model = CausalModel(model)

    def allot(self, positions: int, running: int, *, reuse: bool) -> None:
        pass

    def fits(self, lengths: list[int]) -> bool:
        return True

    def shared(self, ids: list[int]) -> int:
        return 0

    def start(self, sequence: Sequence) -> None:
        sequence.cached = 0

    def forward(self, work: list[tuple[Sequence, int]]) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        rows = sequence.rows(count)
        sequence.cached += count
        ids = torch.tensor([[*sequence.ids, *sequence.draft][: sequence.cached]], device=self._model.device)
        return _last(self._model, ids, rows, None)

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        pass

    def relieve(self) -> bool:
        return False

    def close(self) -> None:
        pass


def _last(model: CausalModel, ids: torch.Tensor, rows: int, cache: Any) -> torch.Tensor:
    """The logits [rows, vocabulary] behind the last of `ids` (int64 [1, new])."""
    length = ids.shape[1]
    keep = torch.arange(length - max(rows, 1), length, device=model.device)
    return model(ids, keep, cache)[0, max(rows, 1) - rows :]


def _bytes(cache: Any) -> int:
    """What the keys and values of a cache take."""
    return sum(
        tensor.numel() * tensor.element_size() for layer in cache.layers for tensor in (layer.keys, layer.values)
    )
