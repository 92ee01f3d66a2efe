"""One sequence in each forward, for models whose caches cannot be shared row by row (sliding windows, states, ...)."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache

from chatlocal.engine.runtime.causal_model import CausalModel
from chatlocal.engine.runtime.sequence import Sequence


class PlainRunner:
    """A Runner that gives each sequence a cache of transformers' making.

    `in_pieces` is False for models that carry a state along: many of them forget it where a prompt is read in pieces.
    `takes_back`: every layer keeps all keys and values.
    """

    shares = False

    def __init__(self, model: Any, *, in_pieces: bool, takes_back: bool) -> None:
        self.in_pieces = self.several = in_pieces
        self.takes_back = takes_back
        self._model = CausalModel(model)
        self._caches: dict[Sequence, Any] = {}

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        cache = self._caches.get(sequence)
        if cache is None:
            cache = self._caches[sequence] = DynamicCache(config=self._model.model.config)
        elif self.takes_back and (surplus := int(cache.get_seq_length()) - sequence.cached):
            cache.crop(-surplus)
        ids = torch.tensor([sequence.next_ids(count)], device=self._model.device)
        logits = _last(self._model, ids, sequence.rows(count), cache)
        sequence.cached += count
        return logits

    def release(self, sequence: Sequence) -> None:
        self._caches.pop(sequence, None)

    def close(self) -> None:
        self._caches.clear()


class RereadingRunner:
    """A Runner without any cache: each new id costs a forward over all ids before it. Right for every causal model."""

    shares = False
    in_pieces = False
    several = True
    takes_back = True

    def __init__(self, model: Any) -> None:
        self._model = CausalModel(model)

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        rows = sequence.rows(count)
        sequence.cached += count
        ids = torch.tensor([[*sequence.ids, *sequence.draft][: sequence.cached]], device=self._model.device)
        return _last(self._model, ids, rows, None)

    def release(self, sequence: Sequence) -> None:
        pass

    def close(self) -> None:
        pass


def _last(model: CausalModel, ids: torch.Tensor, rows: int, cache: Any) -> torch.Tensor:
    """The logits [rows, vocabulary] behind the last of `ids` (int64 [1, new])."""
    length = ids.shape[1]
    keep = torch.arange(length - max(rows, 1), length, device=model.device)
    return model(ids, keep, cache)[0, max(rows, 1) - rows :]
