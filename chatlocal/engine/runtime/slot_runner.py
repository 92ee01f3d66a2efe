"""Sequences in rows of one shared cache, several in each forward."""

from __future__ import annotations

from typing import Any

import torch

from chatlocal.engine.runtime.causal_model import CausalModel
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slot_cache import SlotCache
from chatlocal.engine.runtime.slots import Rectangle, Slots


class SlotRunner:
    """A Runner for models whose layers all keep plain keys and values; `layers` is how many they are."""

    shares = True
    ragged = False
    in_pieces = True
    several = True
    takes_back = True
    reuses = True
    wipes = True
    """Whether attention multiplies what it does not see by 0, which must be a number then."""

    def __init__(self, model: Any, layers: int) -> None:
        self._model = CausalModel(model)
        self._cache = SlotCache(layers, self._model.device)
        self._slots = Slots()

    @property
    def position_bytes(self) -> int:
        return self._cache.position_bytes

    def allot(self, positions: int, running: int, *, reuse: bool) -> None:
        self._slots.allot(positions, running, reuse=reuse)

    def fits(self, lengths: list[int]) -> bool:
        return self._slots.fits(lengths)

    def shared(self, ids: list[int]) -> int:
        return self._slots.shared(ids)

    def start(self, sequence: Sequence) -> None:
        start = self._slots.start(sequence)
        self._reshape(start.rectangle)
        if start.source != start.row:
            self._cache.copy(start.source, start.row, start.length)

    def forward(self, work: list[tuple[Sequence, int]]) -> torch.Tensor:
        longest = self._make_room(work)
        first = self._arrange([sequence for sequence, _ in work])
        # The rows of the forward are those of the cache, in whatever order the sequences stand there.
        place = [self._slots.row(sequence) - first for sequence, _ in work]
        widest = max(count for _, count in work)
        ids = torch.zeros(len(work), widest, dtype=torch.long)
        starts = torch.zeros(len(work), dtype=torch.long)
        counts = torch.zeros(len(work), dtype=torch.long)
        for row, (sequence, count) in zip(place, work, strict=True):
            ids[row, :count] = torch.tensor(sequence.next_ids(count))
            starts[row], counts[row] = sequence.cached, count
        device = self._model.device
        new = torch.arange(widest)
        columns = starts[:, None] + new
        visible = (torch.arange(longest) <= columns[:, :, None])[:, None].to(device)
        # Padding must not name positions that the model does not have.
        positions = torch.minimum(columns, (starts + counts - 1)[:, None]).to(device)
        # Rows with fewer new ids are padded, and what that gives goes where nothing sees it.
        columns = columns.where(new < counts[:, None], self._cache.beyond)
        self._cache.place(first, columns.to(device), longest)
        wanted = [
            (row, at)
            for row, (sequence, count) in zip(place, work, strict=True)
            for at in range(count - sequence.rows(count), count)
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

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        if sequence not in self._slots:
            return
        row, written = self._slots.release(sequence, keep=keep)
        if self.wipes and not keep:
            self._cache.wipe(row, written)
        if self._slots.empty:
            self.close()

    def relieve(self) -> bool:
        rectangle = self._slots.forget()
        try:
            self._reshape(rectangle)
        except (MemoryError, RuntimeError):
            return True  # a smaller cache is made beside this one, for want of room all of it was given back
        return rectangle is not None

    def close(self) -> None:
        self._slots.clear()
        self._cache.clear()

    def _make_room(self, work: list[tuple[Sequence, int]]) -> int:
        """Rows and columns for what is about to be read; gives how many columns the longest sequence then has."""
        for sequence, _ in work:
            if sequence not in self._slots:
                self._reshape(self._slots.start(sequence, afresh=True).rectangle)
        longest = max(sequence.cached + count for sequence, count in work)
        self._reshape(self._slots.grow(longest))
        for sequence, count in work:
            self._slots.wrote(sequence, sequence.cached + count)
        return longest

    def _reshape(self, rectangle: Rectangle | None) -> None:
        if rectangle is None:
            return
        try:
            self._cache.reshape(rectangle)
        except BaseException:  # some layers may have the new size and some the old one
            self.close()
            raise

    def _arrange(self, sequences: list[Sequence]) -> int:
        """Bring the sequences into neighbouring rows, moving as little as can be; gives the first of these rows."""
        slots = self._slots
        rows = sorted(slots.row(sequence) for sequence in sequences)
        count = len(rows)
        if rows[-1] - rows[0] == count - 1:
            return rows[0]
        reach = [slots.reach(row) for row in range(slots.rows)]
        taken = set(rows)

        def moved(first: int) -> int:
            window = range(first, first + count)
            return sum(reach[row] for row in taken.symmetric_difference(window))

        first = min(range(slots.rows - count + 1), key=moved)
        window = range(first, first + count)
        outside = [row for row in rows if row not in window]
        for one, other in zip(outside, [row for row in window if row not in taken], strict=True):
            self._cache.swap(one, other, slots.swap(one, other))
        return first
