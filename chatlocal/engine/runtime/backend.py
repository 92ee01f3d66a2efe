"""The seam below messages and text: ids in, ids out.

The torch backend stands behind it, and so does anything else that turns prompt ids into ids: tests put a scripted
backend here that replays given ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from chatlocal.engine.messages import Sampling


@dataclass(frozen=True, slots=True)
class IdLogprob:
    """The natural-log probability of one id; `top` are (id, log-probability) pairs, best first."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """New ids, in order.

    `replaces` is how many of the ids sent before these stand for: their text is a prefix of these ids' text. So it is
    where forced text went on and is written with other ids now. `choices`, under a constraint, are the natural-log
    probabilities of the ids among those that were allowed; 0 where no other one was. `cached` is how many ids of the
    prompt needed no forward, in every event of a request.
    """

    ids: tuple[int, ...]
    logprobs: tuple[IdLogprob, ...] = ()
    replaces: int = 0
    choices: tuple[float, ...] = ()
    cached: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of a request. `stop_id` is the end id that the model chose; it is not among the Tokens.

    `choice` is its log-probability as in Tokens.choices, `cached` as there.
    """

    reason: Literal["stop", "length", "cancelled"]
    stop_id: int | None = None
    choice: float = field(default=0.0, compare=False)
    cached: int = field(default=0, compare=False)


TokenEvent = Tokens | Done


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue. Every field of `sampling` but `stop` is the backend's business.

    `stop_ids` end the answer. `logprobs` is how many alternatives to report for each id, None for no report. Of the
    requests that wait, those with the highest `priority` start first.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    constraint_spec: Any = None
    logprobs: int | None = None
    priority: int = 0
    media: tuple[Any, ...] = ()


@runtime_checkable
class Backend(Protocol):
    """Turns requests into ids. Every method may be called from any thread."""

    def submit(self, request: Request) -> Iterator[TokenEvent]:
        """Events of one request, ending with Done. Closing the iterator cancels the request."""
        ...

    def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """For each continuation, the log-likelihood in nats of all its ids after the prompt, summed; blocks."""
        ...
