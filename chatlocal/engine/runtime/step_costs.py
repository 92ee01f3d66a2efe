"""What a forward costs by the number of ids that it reads, learned from the forwards that are run anyway."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from chatlocal.engine.runtime.runner import Runner

# A new measurement counts for so much of the average, and for at most so many times what was expected: other programs
# run on the machine too.
_WEIGHT = 0.15
_OUTLIER = 3.0
# The first forwards of a kind allocate and compile: of so many the fastest counts.
_FIRST = 3
# What is not measured yet is taken for nearly free, so that it is tried: so much more for each doubling of the ids.
_HOPE = 0.15
# Forwards after which a number of ids that did not occur is unknown again.
_FORGOTTEN = 2_000
_EXACT = 16
_MOST = 512


class Costs(Protocol):
    """What drafting asks for."""

    def seconds(self, ids: int) -> float:
        """What a forward over so many ids takes; only the ratios count."""
        ...

    def done(self) -> None:
        """The logits of the last forward have been seen."""
        ...


class StepCosts:
    """A running average of seconds for each number of ids. Of a padded forward the padding counts."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._average: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._times: dict[int, int] = {}
        self._forwards = 0
        self._running: tuple[int, float] | None = None

    def watch(self, runner: Runner) -> None:
        """Time the runner's forwards from now on, from their beginning to `done`."""
        padded = not runner.ragged

        def timed(work: list[Any]) -> Any:
            counts = [count for _, count in work]
            ids = max(counts) * len(counts) if padded and runner.shares else sum(counts)
            self.start(ids)
            return type(runner).forward(runner, work)

        runner.forward = timed  # type: ignore[method-assign]

    def start(self, ids: int) -> None:
        self._running = (ids, self._clock()) if ids <= _MOST else None

    def done(self) -> None:
        if self._running is None:
            return
        (ids, started), self._running = self._running, None
        self.add(ids, self._clock() - started)

    def add(self, ids: int, seconds: float) -> None:
        """A forward over so many ids took so long."""
        self._forwards += 1
        group = _group(ids)
        known = self._average.get(group, seconds)
        times = self._times[group] = self._times.get(group, 0) + 1
        if times <= _FIRST:
            self._average[group] = min(known, seconds)
        else:
            self._average[group] = known + _WEIGHT * (min(seconds, _OUTLIER * known) - known)
        self._seen[group] = self._forwards

    def seconds(self, ids: int) -> float:
        group = _group(ids)
        current = sorted(one for one, seen in self._seen.items() if self._forwards - seen < _FORGOTTEN)
        below = [one for one in current if one <= group]
        above = [one for one in current if one > group]
        if below and below[-1] == group:
            return self._average[group]
        if not below:
            return self._average[above[0]] if above else 1.0
        low = below[-1]
        if above:
            high = above[0]
            share = (group - low) / (high - low)
            return self._average[low] + share * max(0.0, self._average[high] - self._average[low])
        return self._average[low] * float((group / low) ** _HOPE)


def _group(ids: int) -> int:
    """Larger numbers are rounded, so that each is met now and then."""
    step = 1
    while ids > _EXACT * step:
        step *= 2
    return -(-ids // step) * step
