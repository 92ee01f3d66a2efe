"""The beginning that texts share."""

from __future__ import annotations

from collections.abc import Collection


def common_prefix(texts: Collection[str]) -> str:
    """The longest text that all of them begin with, "" of none."""
    first, last = min(texts, default=""), max(texts, default="")  # what these two share, all in between them do
    size = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return first[:size]
