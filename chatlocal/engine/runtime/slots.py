"""Which row of a cache belongs to which sequence, and which rows hold what sequences that have ended left behind.

The cache is a rectangle: a row for each sequence, a column for each position. This is its book-keeping alone: whoever
owns the tensors asks here where a sequence lives, which positions of which row it may take over, and how large the
rectangle has to be, and moves the numbers accordingly. Rows that are held are given up, the least recently used first,
before a running sequence is short of anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from chatlocal.engine.runtime.sequence import Sequence

# Columns are added in steps of this many positions and by half at least, so that growing copies little.
_COLUMN_STEP = 256

# How many rows are held at most: conversations and prompts that a process comes back to.
MOST_HELD = 16

# A row that is held is taken over whole where what the new sequence does not share is at most this part of what it
# does: reading that again costs less than a row that holds nearly the same.
_LOSS = 0.125


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A new size for the cache. `kept` are (row before, row from now on, how many positions of it matter)."""

    rows: int
    columns: int
    kept: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a sequence begins: the first `length` positions of row `source` are to be copied to `row`.

    Nothing is to be copied where both are the same row. Both are rows of `rectangle`, which is to be brought about
    first where it is not None.
    """

    row: int
    source: int
    length: int
    rectangle: Rectangle | None


class _Row:
    """One row. Without an owner it holds `ids`, and is free where these are none."""

    __slots__ = ("ids", "owner", "reach", "used")

    def __init__(self) -> None:
        self.owner: Sequence | None = None
        self.ids: list[int] = []
        self.reach = 0
        """How many positions were written since the row was last free."""
        self.used = 0

    @property
    def free(self) -> bool:
        return self.owner is None and not self.ids

    @property
    def valid(self) -> list[int]:
        """The ids whose keys and values are in the row."""
        return self.ids if self.owner is None else self.owner.ids[: self.owner.cached]

    @property
    def length(self) -> int:
        """How many positions must not be lost."""
        return len(self.ids) if self.owner is None else self.owner.cached

    def clear(self) -> None:
        self.owner, self.ids, self.reach = None, [], 0


class Slots:
    """The rows of one cache. `rows` and `columns` are the size of the rectangle as it is."""

    def __init__(self) -> None:
        self.rows = self.columns = 0
        self.positions = sys.maxsize
        """How many positions the rectangle may have."""
        self._most_rows = sys.maxsize
        self._reuse = True
        self._table: list[_Row] = []  # as many as `rows`
        self._row_of: dict[Sequence, int] = {}
        self._clock = 0

    def allot(self, positions: int, running: int, *, reuse: bool) -> None:
        """What the rectangle may have at most: rows x columns <= `positions`, for `running` sequences at once.

        Without `reuse` nothing is held. Until this is called there is no limit.
        """
        self.positions = positions
        self._most_rows = running + (MOST_HELD if reuse else 0)
        self._reuse = reuse

    def fits(self, lengths: Iterable[int]) -> bool:
        """Whether sequences of so many positions have room together, if nothing else is held."""
        each = list(lengths)
        return len(each) * max(each, default=0) <= self.positions

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._row_of

    @property
    def empty(self) -> bool:
        """Whether no row is used or held."""
        return all(row.free for row in self._table)

    @property
    def held(self) -> int:
        """How many rows hold what a sequence that has ended left behind."""
        return len(self._held())

    def row(self, sequence: Sequence) -> int:
        """The row of a sequence that was started."""
        return self._row_of[sequence]

    def shared(self, ids: list[int]) -> int:
        """How many of the first ids are held or in use somewhere; never the last one, whose logits are wanted."""
        return self._longest(ids)[1]

    def start(self, sequence: Sequence, *, afresh: bool = False) -> Start:
        """Give a sequence a row, and as much of what others have read as its ids begin with. MemoryError: no room.

        `cached` of the sequence becomes what it gets; nothing if it is to start `afresh`.
        """
        source, length = (None, 0) if afresh else self._longest(sequence.ids)
        needed = len(sequence.ids)
        if source is None or not self._gives_way(source, length, needed):
            fitted = self._fit(1, needed, source)
            row = next(row for row in self._table if row.free)
            row.reach = length
        else:
            row, fitted = source, None
            row.ids = []
        self._clock += 1
        row.owner, row.used = sequence, self._clock
        origin = row if source is None else source
        origin.used = self._clock
        self._row_of[sequence] = self._table.index(row)
        sequence.cached = length
        return Start(self._row_of[sequence], self._table.index(origin), length, fitted)

    def grow(self, length: int) -> Rectangle | None:
        """Make sure of so many columns: a new size if there are not enough. MemoryError where there is no room."""
        return None if length <= self.columns else self._fit(0, length)

    def wrote(self, sequence: Sequence, length: int) -> None:
        """Note that the row of a sequence was written up to this position."""
        row = self._table[self._row_of[sequence]]
        row.reach = max(row.reach, length)

    def release(self, sequence: Sequence, *, keep: bool) -> tuple[int, int]:
        """Take a sequence out; `keep` holds what it leaves for others.

        Gives its row and how many positions of it were written. Unless the row is kept they may hold anything, also
        what is not a number, and no other sequence must come to see it.
        """
        index = self._row_of.pop(sequence)
        row = self._table[index]
        reach, valid = row.reach, row.valid
        row.clear()
        if keep and self._reuse:
            self._hold(row, valid)
        return index, reach

    def swap(self, one: int, other: int) -> int:
        """Exchange two rows; gives how many positions of each have to change places."""
        table = self._table
        length = max(table[one].reach, table[other].reach)
        table[one], table[other] = table[other], table[one]
        for index in (one, other):
            owner = table[index].owner
            if owner is not None:
                self._row_of[owner] = index
        return length

    def reach(self, row: int) -> int:
        """How many positions of a row would have to move with it."""
        return self._table[row].reach

    def forget(self) -> Rectangle | None:
        """Give up every row that is held, and all room to grow; None where the rectangle has no such rows."""
        for row in self._held():
            row.clear()
        live = [row.length for row in self._table if row.owner is not None]
        if len(live) == self.rows and max(live, default=0) == self.columns:
            return None
        return self._place(len(live), max(live, default=0))

    def clear(self) -> None:
        """Forget everything: the cache is gone, and `cached` of those that live in it is 0."""
        for sequence in self._row_of:
            sequence.cached = 0
        self.rows = self.columns = 0
        self._table.clear()
        self._row_of.clear()

    def _held(self) -> list[_Row]:
        """Rows without an owner that hold something, the least recently used first."""
        return sorted((row for row in self._table if row.ids), key=lambda row: row.used)

    def _hold(self, row: _Row, ids: list[int]) -> None:
        """Keep what a row has for others, in one row where several begin alike and one goes on."""
        for other in self._held():
            if other.ids[: len(ids)] == ids:
                other.used = self._clock
                return
            if ids[: len(other.ids)] == other.ids:
                other.clear()
        self._clock += 1
        row.ids, row.reach, row.used = ids, len(ids), self._clock
        for oldest in self._held()[:-MOST_HELD]:
            oldest.clear()

    def _longest(self, ids: list[int]) -> tuple[_Row | None, int]:
        """The row that shares most of the first ids, and how many; of equals one that is shared whole."""
        found, best = None, (0, False, 0)
        for row in self._table if self._reuse else ():
            valid = row.valid
            common = min(common_prefix(ids, valid), len(ids) - 1)
            rank = (common, row.owner is None and len(valid) == common, row.used)
            if common and rank > best:
                found, best = row, rank
        return found, best[0]

    def _gives_way(self, source: _Row, length: int, needed: int) -> bool:
        """Whether a sequence of `needed` ids takes the whole row over with which it shares `length` of them."""
        if source.owner is not None:
            return False
        if len(source.ids) - length <= _LOSS * length:
            return True
        live = [row.length for row in self._table if row.owner is not None]
        rows = len(live) + 2
        return rows > self._most_rows or rows * max([needed, *live]) > self.positions

    def _fit(self, fresh: int, length: int, spared: _Row | None = None) -> Rectangle | None:
        """Room for so many more rows and for this many columns; rows that are held make way, but not `spared`."""
        live = [row.length for row in self._table if row.owner is not None]
        held = self._held()
        needed = max([length, *live])
        if (len(live) + fresh) * needed > self.positions:
            raise MemoryError(
                f"{len(live) + fresh} sequences of up to {needed} positions have no room in a cache of"
                f" {self.positions}."
            )
        total = len(live) + len(held) + fresh
        for row in held:
            if total <= self._most_rows and total * needed <= self.positions:
                break
            if row is not spared:
                row.clear()
                total -= 1
        if total <= self.rows and needed <= self.columns:
            return None
        columns = self.columns if needed <= self.columns else max(needed, self.columns * 3 // 2)
        columns = -(-columns // _COLUMN_STEP) * _COLUMN_STEP
        columns = max(needed, min(columns, self.positions // total))
        rows = max(1 << (total - 1).bit_length(), self.rows)
        return self._place(max(total, min(rows, self._most_rows, self.positions // max(columns, 1))), columns)

    def _place(self, rows: int, columns: int) -> Rectangle:
        """Change the size. Each row stays where it is if there is still such a row, and moves to a free one if not."""
        table = [_Row() for _ in range(rows)]
        kept: list[tuple[int, int, int]] = []
        used = [(index, row) for index, row in enumerate(self._table) if not row.free]
        for index, row in used:
            if index < rows:
                table[index] = row
                kept.append((index, index, min(row.length, columns)))
        free = (index for index, row in enumerate(table) if row.free)
        for (index, row), there in zip([(index, row) for index, row in used if index >= rows], free, strict=False):
            table[there] = row
            kept.append((index, there, min(row.length, columns)))
        for row in table:
            del row.ids[columns:]
            row.reach = min(row.length, columns)
        self._table = table
        self._row_of = {row.owner: index for index, row in enumerate(table) if row.owner is not None}
        self.rows, self.columns = rows, columns
        return Rectangle(rows, columns, tuple(kept))


def common_prefix(one: list[int], other: list[int]) -> int:
    """How many ids both begin with. By halves, so that lists are compared and not their items one by one in Python."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    low, high = 0, length  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
