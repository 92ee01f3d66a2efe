"""What `Extractor` needs of a model: an answer to one text, judged, whole or as it grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

from chatlocal.engine.repair import Tries

Grown = Callable[[Any], None]
"""Called with the JSON value of an answer as far as it is there."""


class Abandoned(Exception):
    """Nobody waits for the answer any more; raised in the thread that makes it, and seen by nobody else."""


@dataclass(frozen=True)
class Answered:
    """All answers to one text. `confidence` is that of the last one, by JSON pointer; None where there was no grammar.

    `usage` are sums over the requests: prompt_tokens, completion_tokens, cached_tokens.
    """

    tries: Tries[Any]
    confidence: Mapping[str, float] | None = None
    usage: Mapping[str, int] = field(default_factory=dict)


class Answering(Protocol):
    """One model and one schema."""

    def answer(self, text: str, retries: int, *, grown: Grown | None = None, ended: Event | None = None) -> Answered:
        """The answers to a text; blocks. Once `ended` is set the work stops with Abandoned at the next chance."""

    async def aanswer(self, text: str, retries: int) -> Answered:
        """The same for an event loop; cancelling the task ends the work."""

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has."""


def check_wanted(ended: Event | None) -> None:
    """Abandoned, where nobody wants the answer any more."""
    if ended is not None and ended.is_set():
        raise Abandoned
