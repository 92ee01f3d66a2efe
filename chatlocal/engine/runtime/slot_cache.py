"""Keys and values of many sequences in one tensor a layer: a row for each sequence, a column for each position.

transformers' attention layers see a plain Cache. What differs is where new keys and values go: to the rows and
positions that `place` announced before the forward, instead of behind everything that is there.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

# Columns are added in steps of this many positions, so that a growing answer does not copy the cache at every id.
_LENGTH_STEP = 256


class Placement:
    """Where the new keys and values of one forward go. Shared by all layers."""

    first_row: int
    rows: int
    columns: int
    row_index: torch.Tensor
    position_index: torch.Tensor


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer: `keys` and `values` are [rows, heads, columns, head_dim] and are made at the first forward."""

    is_croppable = False
    is_sliding = False

    def __init__(self, placement: Placement) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._placement = placement

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        # key_states and value_states: [batch, heads, length, head_dim]; the two head_dims may differ.
        at = self._placement
        heads, key_dim = key_states.shape[1], key_states.shape[3]
        self.keys = key_states.new_zeros(at.rows, heads, at.columns, key_dim)
        self.values = value_states.new_zeros(at.rows, value_states.shape[1], at.columns, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        at = self._placement
        assert self.keys is not None
        assert self.values is not None
        self.keys[at.row_index, :, at.position_index] = key_states.transpose(1, 2)
        self.values[at.row_index, :, at.position_index] = value_states.transpose(1, 2)
        last_row = at.first_row + key_states.shape[0]
        return (
            self.keys[at.first_row : last_row, :, : self.visible],
            self.values[at.first_row : last_row, :, : self.visible],
        )

    visible = 0
    """How many columns the attention reads: the longest sequence of the forward."""

    def resize(self, rows: int, columns: int) -> None:
        """Keep what is there and make room for `rows` and `columns`."""
        if self.keys is not None and self.values is not None:
            self.keys = _resized(self.keys, rows, columns)
            self.values = _resized(self.values, rows, columns)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.visible, 0

    def get_seq_length(self) -> int:
        return self.visible

    def get_max_length(self) -> int:
        return -1


class SlotCache:
    """The rows of all layers. `cache` is what the model's forward takes."""

    def __init__(self, layers: int, device: torch.device) -> None:
        self.placement = Placement()
        self.placement.rows = self.placement.columns = 0
        self.layers = [SlotLayer(self.placement) for _ in range(layers)]
        self.cache = Cache(layers=list(self.layers))
        self._device = device

    @property
    def rows(self) -> int:
        return self.placement.rows

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` sequences of `length` positions."""
        if rows > self.rows:
            rows = 1 << (rows - 1).bit_length()  # doubling, so that growing row by row copies little
        rows = max(rows, self.rows)
        columns = max(-(-length // _LENGTH_STEP) * _LENGTH_STEP, self.placement.columns)
        if rows > self.rows or columns > self.placement.columns:
            for layer in self.layers:
                layer.resize(rows, columns)
            # Last, so that a resize that runs out of memory is made up for at the next call.
            self.placement.rows, self.placement.columns = rows, columns

    def place(self, first_row: int, positions: torch.Tensor, visible: int) -> None:
        """Announce the next forward: `positions` [batch, new ids] are the columns of its rows from `first_row` on."""
        batch, new = positions.shape
        self.placement.first_row = first_row
        rows = torch.arange(first_row, first_row + batch, device=self._device)
        self.placement.row_index = rows[:, None].expand(batch, new)
        self.placement.position_index = positions
        for layer in self.layers:
            layer.visible = visible

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for layer in self.layers:
            for tensor in (layer.keys, layer.values):
                if tensor is not None:
                    kept = tensor[one, :, :length].clone()
                    tensor[one, :, :length] = tensor[other, :, :length]
                    tensor[other, :, :length] = kept

    def wipe(self, row: int) -> None:
        """Set a row to 0. What it held could not be seen, but a hidden value that is not a number spoils the sum."""
        for layer in self.layers:
            for tensor in (layer.keys, layer.values):
                if tensor is not None:
                    tensor[row] = 0

    def clear(self) -> None:
        """Give the memory back."""
        self.placement.rows = self.placement.columns = 0
        for layer in self.layers:
            layer.keys = layer.values = None
            layer.is_initialized = False


def _resized(tensor: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    old_rows, heads, old_columns, dim = tensor.shape
    grown = tensor.new_zeros(max(rows, old_rows), heads, max(columns, old_columns), dim)
    grown[:old_rows, :, :old_columns] = tensor
    return grown
