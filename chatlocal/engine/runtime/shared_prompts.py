"""Prompts that arrive together and begin alike: one is read, the others wait for what they share with it."""

from __future__ import annotations

from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slots import common_prefix

# Waiting pays from so many ids on that need not be read: below that they are read along in one forward.
_WORTH_WAITING = 64


class SharedPrompts:
    """Which prompts wait for which. `runner` says what is in the cache already."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._leaders: dict[Sequence, tuple[Sequence, int]] = {}

    def enter(self, sequence: Sequence, before: list[Sequence]) -> None:
        """Let a prompt wait for one of those `before` it that is about to read much of what it begins with."""
        if not self._runner.reuses:
            return
        best = self._runner.shared(sequence.ids) + _WORTH_WAITING - 1
        for other in before:
            common = min(common_prefix(sequence.ids, other.ids), len(sequence.ids) - 1)
            if common > max(best, other.cached):
                best = common
                self._leaders[sequence] = (other, common)

    def waits(self, sequence: Sequence, reading: list[Sequence]) -> bool:
        """Whether it still has to wait; `reading` are all prompts that are being read, in order."""
        while sequence in self._leaders:
            leader, common = self._leaders[sequence]
            if leader in reading and leader.cached < common:
                return True
            del self._leaders[sequence]
            if leader.cached < common:  # it went away
                self.enter(sequence, reading[: reading.index(sequence)])
        return False

    def leave(self, sequence: Sequence) -> None:
        self._leaders.pop(sequence, None)
