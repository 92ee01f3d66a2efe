"""A cursor that stands around another one and changes a part of what it does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.json_place import Place
from chatlocal.engine.constraints.protocol import Cursor


class Around(Cursor):
    """What a subclass says nothing of is what `_cursor` does."""

    _cursor: Cursor

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        self._cursor.fill(allowed)

    def advance(self, id: int) -> bool:
        return self._cursor.advance(id)

    def rollback(self, count: int) -> None:
        self._cursor.rollback(count)

    def forced_bytes(self) -> bytes:
        return self._cursor.forced_bytes()

    def way_out(self) -> tuple[int, ...]:
        return self._cursor.way_out()

    @property
    def place(self) -> Place:
        return self._cursor.place

    @property
    def complete(self) -> bool:
        return self._cursor.complete

    @property
    def exhausted(self) -> bool:
        return self._cursor.exhausted
