"""Sequences in rows of one shared cache, several in each forward."""

from __future__ import annotations

from typing import Any

import torch

from chatlocal.engine.runtime.causal_model import CausalModel
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slot_cache import SlotCache


class SlotRunner:
    """A Runner for models whose layers all keep plain keys and values; `layers` is how many they are."""

    shares = True
    in_pieces = True
    several = True
    takes_back = True

    def __init__(self, model: Any, layers: int) -> None:
        self._model = CausalModel(model)
        self._cache = SlotCache(layers, self._model.device)
        self._rows: list[Sequence] = []

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        widest = max(count for _, count in work)
        starts = torch.tensor([sequence.cached for sequence, _ in work])
        last = torch.tensor([count - 1 for _, count in work])
        longest = int(starts.max()) + widest
        self._arrange([sequence for sequence, _ in work], first_row, longest)
        # Rows with fewer new ids are padded; the next forward overwrites their padding before anything can see it.
        ids = torch.zeros(len(work), widest, dtype=torch.long)
        for row, (sequence, count) in enumerate(work):
            ids[row, :count] = torch.tensor(sequence.next_ids(count))
        columns = starts[:, None] + torch.arange(widest)
        device = self._model.device
        visible = (torch.arange(longest) <= columns[:, :, None])[:, None].to(device)
        # Padding must not name positions that the model does not have.
        positions = torch.minimum(columns, (starts + last)[:, None]).to(device)
        self._cache.place(first_row, columns.to(device), longest)
        wanted = [
            (row, place)
            for row, (sequence, count) in enumerate(work)
            for place in range(count - sequence.rows(count), count)
        ]
        of_row, places = torch.tensor(wanted or [(0, 0)]).T
        keep, where = torch.unique(places, return_inverse=True)
        logits = self._model(
            ids.to(device),
            keep.to(device),
            self._cache.cache,
            attention_mask=self._model.mask(visible),
            position_ids=positions,
        )
        for sequence, count in work:
            sequence.cached += count
        return logits[of_row.to(device), where.to(device)][: len(wanted)]

    def release(self, sequence: Sequence) -> None:
        if sequence in self._rows:
            last = len(self._rows) - 1
            self._swap(self._rows.index(sequence), last)
            self._rows.pop()
            if last < self._cache.rows:
                self._cache.wipe(last)
        if not self._rows:
            self._cache.clear()

    def close(self) -> None:
        self._rows.clear()
        self._cache.clear()

    def _arrange(self, sequences: list[Sequence], first_row: int, length: int) -> None:
        """Bring the sequences into the rows from `first_row` on, in this order."""
        self._rows += [sequence for sequence in sequences if sequence not in self._rows]
        self._cache.reserve(len(self._rows), length)
        for offset, sequence in enumerate(sequences):
            self._swap(first_row + offset, self._rows.index(sequence))

    def _swap(self, one: int, other: int) -> None:
        length = max(self._rows[one].cached, self._rows[other].cached)
        if one != other and length:
            self._cache.swap(one, other, length)
        self._rows[one], self._rows[other] = self._rows[other], self._rows[one]
