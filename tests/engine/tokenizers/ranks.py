"""A small vocabulary in tiktoken's form."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chatlocal.engine.constraints.vocabulary import token_bytes
from tests.tiny import tiny_tokenizer


@cache
def small_ranks() -> dict[bytes, int]:
    """The tokens of the tiny tokenizer in the order in which they were made: single bytes first, then the merges."""
    return {token: rank for rank, token in enumerate(token for token in token_bytes(tiny_tokenizer()) if token)}


def write_ranks(path: Path, ranks: dict[bytes, int]) -> Path:
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


def reference(pattern: str, ranks: dict[bytes, int], special: tuple[str, ...] = ()) -> Any:
    """tiktoken's own encoder. Skips where the library is not installed."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken, the reference, is not installed")
    ids = {token: len(ranks) + place for place, token in enumerate(special)}
    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens=ids)
