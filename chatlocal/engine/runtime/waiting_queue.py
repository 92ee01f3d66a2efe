"""Who is next of those that wait."""

from __future__ import annotations

from collections.abc import Iterator

from chatlocal.engine.runtime.sequence import Sequence

# One that so many others have overtaken is next, whatever their priority.
_PATIENCE = 64


class WaitingQueue:
    """Sequences that wait: the highest priority first, of equals the oldest."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self._overtaken: dict[Sequence, int] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def add(self, sequence: Sequence) -> None:
        self._sequences.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        self._sequences.remove(sequence)
        self._overtaken.pop(sequence, None)

    def clear(self) -> None:
        self._sequences.clear()
        self._overtaken.clear()

    def first(self) -> Sequence | None:
        patient = [one for one, times in self._overtaken.items() if times >= _PATIENCE]
        return min(patient or self._sequences, key=rank, default=None)

    def take(self, sequence: Sequence) -> None:
        """Take one out whose turn it is; those before it in order of arrival have been overtaken."""
        self.remove(sequence)
        for other in self._sequences:
            if other.arrival < sequence.arrival:
                self._overtaken[other] = self._overtaken.get(other, 0) + 1


def rank(sequence: Sequence) -> tuple[int, int]:
    """Smaller for what comes first."""
    return -sequence.request.priority, sequence.arrival
