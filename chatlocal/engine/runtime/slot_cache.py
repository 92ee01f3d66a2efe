"""Keys and values of many sequences in one tensor a layer: a row for each sequence, a column for each position.

transformers' attention layers see a plain Cache. What differs is where new keys and values go: to the rows and
positions that `place` announced before the forward, instead of behind everything that is there.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from chatlocal.engine.runtime.slots import Rectangle


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
        self.keys = _zeros(key_states, at.rows, at.columns)
        self.values = _zeros(value_states, at.rows, at.columns)
        self.position_bytes = (self.keys[0, :, 0].numel() + self.values[0, :, 0].numel()) * self.keys.element_size()
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

    position_bytes = 0
    """What a position takes, keys and values; known from the first forward on."""

    def reshape(self, rectangle: Rectangle) -> None:
        """Take another size, with what matters of each row."""
        if self.keys is not None and self.values is not None:
            self.keys = _reshaped(self.keys, rectangle)
            self.values = _reshaped(self.values, rectangle)

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
    def position_bytes(self) -> int:
        """What a position takes in all layers; 0 before the first forward."""
        return sum(layer.position_bytes for layer in self.layers)

    def reshape(self, rectangle: Rectangle) -> None:
        """Take another size. Where that runs out of memory the layers may differ until it is called again."""
        for layer in self.layers:
            layer.reshape(rectangle)
        self.placement.rows, self.placement.columns = rectangle.rows, rectangle.columns

    def place(self, first_row: int, positions: torch.Tensor, visible: int) -> None:
        """Announce the next forward: `positions` [batch, new ids] are the columns of its rows from `first_row` on.

        The column behind the last one (`beyond`) takes what nobody is to see.
        """
        batch, new = positions.shape
        self.placement.first_row = first_row
        rows = torch.arange(first_row, first_row + batch, device=self._device)
        self.placement.row_index = rows[:, None].expand(batch, new)
        self.placement.position_index = positions
        for layer in self.layers:
            layer.visible = visible

    @property
    def beyond(self) -> int:
        """A column that no forward sees."""
        return self.placement.columns

    def copy(self, source: int, row: int, length: int) -> None:
        """Copy the first `length` positions of one row to another."""
        for tensor in self._tensors():
            tensor[row, :, :length] = tensor[source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for tensor in self._tensors():
            kept = tensor[one, :, :length].clone()
            tensor[one, :, :length] = tensor[other, :, :length]
            tensor[other, :, :length] = kept

    def wipe(self, row: int, length: int) -> None:
        """Set the first `length` positions of a row to 0.

        What they held could not be seen, but a hidden value that is not a number spoils the sum.
        """
        for tensor in self._tensors():
            tensor[row, :, :length] = 0

    def clear(self) -> None:
        """Give the memory back."""
        self.placement.rows = self.placement.columns = 0
        for layer in self.layers:
            layer.keys = layer.values = None
            layer.is_initialized = False

    def _tensors(self) -> Iterator[torch.Tensor]:
        for layer in self.layers:
            if layer.keys is not None and layer.values is not None:
                yield layer.keys
                yield layer.values


def _zeros(like: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """[rows, heads, columns + 1, head_dim] for states [batch, heads, length, head_dim]: 0, and no memory yet on a CPU.

    There the operating system gives pages of zeros when they are written, and torch's own zeros write all of them.
    """
    shape = (rows, like.shape[1], columns + 1, like.shape[3])
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    size = math.prod(shape) * like.element_size()
    return torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=like.dtype, count=math.prod(shape)).view(shape)


def _reshaped(tensor: torch.Tensor, rectangle: Rectangle) -> torch.Tensor:
    changed = _zeros(tensor, rectangle.rows, rectangle.columns)
    for before, now, length in rectangle.kept:
        changed[now, :, :length] = tensor[before, :, :length]
    return changed
