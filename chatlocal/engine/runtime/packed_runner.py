"""Sequences in rows of one shared cache, all new ids of a forward in one line without padding."""

from __future__ import annotations

from typing import Any

import torch

from chatlocal.engine.runtime.fused_layers import FusedLayers
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slot_runner import SlotRunner


class PackedRunner(SlotRunner):
    """A Runner for models whose layers our own kernels run.

    A kernel knows of each id its row and column, so rows need not be neighbours, and each sequence costs what it reads.
    The logits of a sequence are the same to the bit, however it is read and whatever else is in the forward.
    """

    ragged = True
    wipes = False

    def __init__(self, model: Any, layers: int, fused: FusedLayers) -> None:
        super().__init__(model, layers)
        self._fused = fused
        # What the model makes of masks does not reach the kernels: one that it passes through as it is costs nothing.
        self._no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)

    def forward(self, work: list[tuple[Sequence, int]]) -> torch.Tensor:
        self._make_room(work)
        self._fused.prepare(self._cache)
        ids: list[int] = []
        rows: list[int] = []
        columns: list[int] = []
        wanted: list[int] = []
        for sequence, count in work:
            end = sequence.cached + count
            ids += sequence.next_ids(count)
            rows += [self._slots.row(sequence)] * count
            columns += range(sequence.cached, end)
            wanted += range(len(ids) - sequence.rows(count), len(ids))
        positions = torch.tensor(columns)
        with self._fused.placed(torch.tensor(rows), positions, self._cache):
            logits = self._model(
                torch.tensor([ids]),
                torch.tensor(wanted or [0]),
                self._cache.cache,
                attention_mask=self._no_mask,
                position_ids=positions[None],
            )
        for sequence, count in work:
            sequence.cached += count
        return logits[0, : len(wanted)]
