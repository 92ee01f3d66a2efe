"""What the scheduler needs of a model."""

from __future__ import annotations

from typing import Protocol

import torch

from chatlocal.engine.runtime.sequence import Sequence


class Runner(Protocol):
    """One forward pass over sequences: new ids in, the logits behind each sequence's last new id out."""

    shares: bool
    """Whether several sequences go through one forward."""
    in_pieces: bool
    """Whether a prompt may be read in pieces."""

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        """Read the next n ids of each sequence; float32 logits [len(work), vocabulary] behind its last one read.

        The rows from `first_row` on are used. `cached` of the sequences is moved on.
        """
        ...

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended."""
        ...

    def close(self) -> None:
        """Give the cache's memory back."""
        ...
