"""One request as the scheduler sees it: its ids, how far the cache holds them, and what it still may do."""

from __future__ import annotations

import random

import torch

from chatlocal.engine.constraints import TokenBudget
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.stream import Channel


class Sequence:
    """A running request. Everything that its result depends on lives here, so that no other request can change it.

    `budget` holds the state of its constraint, if it has one. `given` are the new ids where they are known beforehand
    and only their log-probabilities are wanted.
    """

    def __init__(
        self,
        request: Request,
        budget: TokenBudget | None = None,
        given: tuple[int, ...] = (),
    ) -> None:
        self.request = request
        self.channel = Channel()
        self.budget = budget
        self.constraint_state = None if budget is None else budget.state
        self.given = given
        self.ids: list[int] = list(request.prompt_ids)
        self.cached = 0
        """How many of `ids` have their keys and values in the cache."""
        self.broken: Exception | None = None
        """What went wrong with this sequence alone; it ends with it."""
        self.random = random.Random(request.sampling.seed)
        self.counts: torch.Tensor | None = None
        """Occurrences of every id among the new ones, int32 [vocabulary]; kept only where a penalty needs them."""
        self.prompt_seen: torch.Tensor | None = None
        """Which ids the prompt has, bool [vocabulary]; kept only where the repetition penalty needs them."""

    @property
    def pending(self) -> int:
        """How many ids the next forward passes still have to read: 1 while decoding."""
        return len(self.ids) - self.cached

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - len(self.request.prompt_ids)

    @property
    def at_limit(self) -> bool:
        """Whether there are as many new ids as the request allows."""
        limit = self.request.sampling.max_tokens
        return limit is not None and self.new_tokens >= limit
