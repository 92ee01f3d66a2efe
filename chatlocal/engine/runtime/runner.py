"""What the scheduler needs of a model."""

from __future__ import annotations

from typing import Protocol

import torch

from chatlocal.engine.runtime.sequence import Sequence


class Runner(Protocol):
    """One forward pass over sequences: new ids in, logits out."""

    shares: bool
    """Whether several sequences go through one forward."""
    ragged: bool
    """Whether sequences with different numbers of new ids share a forward without padding."""
    in_pieces: bool
    """Whether a prompt may be read in pieces."""
    several: bool
    """Whether more than one id may be read behind those that were read already."""
    takes_back: bool
    """Whether ids that were read can be taken back: `cached` of a sequence may have become less since."""
    reuses: bool
    """Whether a sequence can start from what another one has read."""

    @property
    def position_bytes(self) -> int:
        """What the keys and values of one position take in all layers; 0 before the first forward or if not known."""
        ...

    def allot(self, positions: int, running: int, *, reuse: bool) -> None:
        """How many positions the cache may have, and how many sequences run at once; `reuse` holds what they leave.

        Until this is called there is no limit.
        """
        ...

    def fits(self, lengths: list[int]) -> bool:
        """Whether sequences of so many positions have room together, if nothing else is held."""
        ...

    def shared(self, ids: list[int]) -> int:
        """How many of the first ids a sequence that is started now would not have to read."""
        ...

    def start(self, sequence: Sequence) -> None:
        """Give a sequence its place. `cached` becomes how many of its first ids others have read, all but one at most.

        MemoryError where there is no room: `fits` says so before.
        """
        ...

    def forward(self, work: list[tuple[Sequence, int]]) -> torch.Tensor:
        """Read the next n ids of each sequence, drafts included; one that was not started begins with nothing.

        Gives float32 logits [rows, vocabulary]: `Sequence.rows(n)` for each sequence, in order, behind its last ids.
        `cached` of the sequences is moved on, unless the forward fails.
        """
        ...

    def release(self, sequence: Sequence, *, keep: bool = False) -> None:
        """Forget a sequence that has ended. `keep` says that its keys and values are good for others."""
        ...

    def relieve(self) -> bool:
        """Give back memory that no running sequence needs; says whether there was any."""
        ...

    def close(self) -> None:
        """Give the cache's memory back."""
        ...
