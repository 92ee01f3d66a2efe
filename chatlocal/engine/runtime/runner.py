"""What the scheduler needs of a model."""

from __future__ import annotations

from typing import Protocol

import torch

from chatlocal.engine.runtime.sequence import Sequence


class Runner(Protocol):
    """One forward pass over sequences: new ids in, logits out."""

    shares: bool
    """Whether several sequences go through one forward."""
    in_pieces: bool
    """Whether a prompt may be read in pieces."""
    several: bool
    """Whether more than one id may be read behind those that were read already."""
    takes_back: bool
    """Whether ids that were read can be taken back: `cached` of a sequence may have become less since."""

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        """Read the next n ids of each sequence, drafts included.

        Gives float32 logits [rows, vocabulary]: `Sequence.rows(n)` for each sequence, in order, behind its last ids.
        The rows of the cache from `first_row` on are used. `cached` of the sequences is moved on.
        """
        ...

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended."""
        ...

    def close(self) -> None:
        """Give the cache's memory back."""
        ...
