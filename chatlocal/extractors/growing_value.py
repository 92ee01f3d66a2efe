"""A JSON value that is put together from its leaves, as they come."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any


def nested(leaves: Iterable[tuple[tuple[str | int, ...], Any]]) -> Any:
    """The value that has these leaves at their paths, a number in a path being a place in a list."""
    out: Any = None
    for path, value in leaves:
        if not path:
            out = value
            continue
        if out is None:
            out = [] if isinstance(path[0], int) else {}
        holder = out
        for key, following in pairwise(path):
            if isinstance(key, int) and key == len(holder):
                holder.append([] if isinstance(following, int) else {})
            elif isinstance(key, str):
                holder.setdefault(key, [] if isinstance(following, int) else {})
            holder = holder[key]
        if isinstance(path[-1], int) and path[-1] == len(holder):
            holder.append(value)
        else:
            holder[path[-1]] = value
    return out
