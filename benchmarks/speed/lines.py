"""A line of the table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A figure of ours beside another one. `row` names the group of lines that `--only` chooses.

    `unit` is that of both figures; None stands for a figure that is not there, and `note` says why. `better` says how
    the two compare: "more" (the ratio is ours through theirs), "less" (theirs through ours), or "of": ours is so many
    times theirs, and no rate of success.
    """

    row: str
    what: str
    unit: str
    ours: float | None
    against: str
    theirs: float | None = None
    better: str = "more"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if not self.ours or not self.theirs:
            return None
        return self.theirs / self.ours if self.better == "less" else self.ours / self.theirs


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are there; None when none is."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None
