"""How many prompt ids to read between two decoding steps, so that no running stream has to wait for long.

A step that reads n ids of prompts takes about d + f + p n: d for decoding, f for another forward (nothing where prompts
share the forward of the decoding), p for each id. All three are learned from the steps that are run anyway.
"""

from __future__ import annotations

from collections import deque
from statistics import median

# A stream is to get its next id after about so many decoding steps while a prompt is read. The second is for where
# that leaves room for fewer than `_FEW` ids, or another forward alone takes longer than what it reads.
_GAP = 2.0
_LONG_GAP = 2.7
_FEW = 16

# Ids to read as long as nothing is known, and the fewest and the most at any time.
_FIRST = 32
_FEWEST = 4
_MOST = 1024

# A step that only decodes is taken to last as long as the median of so many: drafts make some of them long.
_REMEMBERED = 31

# What a new measurement counts against those before it, and how far one may be from what was expected: other programs
# run on the machine too.
_WEIGHT = 0.15
_OUTLIER = 3.0

# So many times the average count is far from it.
_FAR = 1.5

# From this standard deviation of the counts on, in averages, they tell what a forward costs from what an id does.
_SPREAD = 0.3


class Pace:
    """Running averages of the seconds that steps take, and what follows from them."""

    def __init__(self) -> None:
        self._decodes: deque[float] = deque(maxlen=_REMEMBERED)
        self._reads = _Line()

    def observe(self, *, decoding: int, read: int, seconds: float) -> None:
        """A step took so long that decoded for `decoding` sequences and read so many prompt ids, padding included."""
        if not read:
            self._decodes.append(seconds)
        elif not decoding:
            self._reads.add(read, seconds)
        elif self._decodes:
            self._reads.add(read, max(0.0, seconds - median(self._decodes)))

    def ids(self, *, reading: int, decoding: int) -> int:
        """How many prompt ids to read in the next step, padding included.

        Where more requests wait for their first id than for their next one, the streams wait longer in proportion.
        """
        if not self._decodes or not self._reads.known:
            return _FIRST
        line, decode = self._reads, median(self._decodes)
        crowd = max(1.0, reading / max(decoding, 1))
        count = line.within((_GAP - 1) * crowd * decode)
        if count < _FEW or count * line.slope < line.start:
            count = line.within((_LONG_GAP - 1) * crowd * decode)
        return max(_FEWEST, min(_MOST, int(count)))


class _Line:
    """seconds = start + slope * ids, fitted to what was seen, the latest most."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5  # weights, ids, ids squared, seconds, ids x seconds
        self.start = self.slope = 0.0

    @property
    def known(self) -> bool:
        return self.slope > 0

    def add(self, ids: int, seconds: float) -> None:
        if self.known:
            seconds = min(seconds, _OUTLIER * (self.start + self.slope * ids))
        latest = (1.0, ids, ids * ids, seconds, ids * seconds)
        self._sums = [(1 - _WEIGHT) * old + new for old, new in zip(self._sums, latest, strict=True)]
        weight, x, xx, y, xy = self._sums
        spread = weight * xx - x * x
        if spread > _SPREAD**2 * x * x:
            fitted = (weight * xy - x * y) / spread
            self.start = min(max(0.0, y - fitted * x), y) / weight
        # Where all counts were about the same nothing tells the parts from each other: the start is taken as it was.
        self.start = min(self.start, 0.9 * y / weight)
        self.slope = (y - self.start * weight) / x

    def within(self, seconds: float) -> float:
        """How many ids can be read in this time; less than 0 for none at all.

        Far above the usual count the line may be wrong: there it goes no further than what ids cost with their start.
        """
        weight, x, _, y, _ = self._sums
        return min((seconds - self.start) / self.slope, max(_FAR * x / weight, seconds * x / y))
