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
    """

    shares = False

    def __init__(self, model: Any, *, in_pieces: bool) -> None:
        self.in_pieces = in_pieces
        self._model = CausalModel(model)
        self._caches: dict[Sequence, Any] = {}

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        cache = self._caches.get(sequence)
        if cache is None:
            cache = self._caches[sequence] = DynamicCache(config=self._model.model.config)
        device = self._model.device
        ids = torch.tensor([sequence.ids[sequence.cached : sequence.cached + count]], device=device)
        logits = self._model(ids, torch.tensor([count - 1], device=device), cache)
        sequence.cached += count
        return logits[:, -1]

    def release(self, sequence: Sequence) -> None:
        self._caches.pop(sequence, None)

    def close(self) -> None:
        self._caches.clear()


class RereadingRunner:
    """A Runner without any cache: each new id costs a forward over all ids before it. Right for every causal model."""

    shares = False
    in_pieces = False

    def __init__(self, model: Any) -> None:
        self._model = CausalModel(model)

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        sequence.cached += count
        ids = torch.tensor([sequence.ids[: sequence.cached]], device=self._model.device)
        return self._model(ids, torch.tensor([sequence.cached - 1], device=self._model.device), None)[:, -1]

    def release(self, sequence: Sequence) -> None:
        pass

    def close(self) -> None:
        pass
