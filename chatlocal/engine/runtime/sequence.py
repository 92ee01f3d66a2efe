"""One request as the scheduler sees it: its ids, how far the cache holds them, and what it still may do."""

from __future__ import annotations

import random

import torch

from chatlocal.engine.constraints import TokenBudget
from chatlocal.engine.runtime.backend import IdLogprob, Request, Tokens
from chatlocal.engine.runtime.stream import Channel


class Sequence:
    """A running request. Everything that its result depends on lives here, so that no other request can change it.

    `budget` holds the state of its constraint, if it has one; with `ready` False it is still to come (`begin`). `given`
    are the new ids where they are known beforehand and only their log-probabilities are wanted.
    """

    def __init__(
        self,
        request: Request,
        budget: TokenBudget | None = None,
        given: tuple[int, ...] = (),
        *,
        ready: bool = True,
    ) -> None:
        self.request = request
        self.channel = Channel()
        self.budget = budget
        self.given = given
        self.ready = ready
        """Whether an answer may be begun; until then all of the prompt but its last id can be read."""
        self.begun = False
        """Whether what its answer must begin with is written."""
        self.ids: list[int] = list(request.prompt_ids)
        self.draft: list[int] = []
        """Ids that may come next. They are read along, and kept as far as they are what is chosen."""
        self.cached = 0
        """How many of `ids` and `draft` have their keys and values in the cache."""
        self.mask: torch.Tensor | None = None
        """Which ids may follow, bool [vocabulary], where that is known before the logits are."""
        self.broken: Exception | None = None
        """What went wrong with this sequence alone; it ends with it."""
        self.random = random.Random(request.sampling.seed)
        self.counts: torch.Tensor | None = None
        """Occurrences of every id among the new ones, int32 [vocabulary]; kept only where a penalty needs them."""
        self.prompt_seen: torch.Tensor | None = None
        """Which ids the prompt has, bool [vocabulary]; kept only where the repetition penalty needs them."""
        self._reports: list[IdLogprob] = []
        self._choices: list[float] = []
        self._sent = 0
        self._replaces = 0

    def begin(self, budget: TokenBudget) -> None:
        """Give it the constraint that it waited for."""
        self.budget = budget
        self.ready = True

    def next_ids(self, count: int) -> list[int]:
        """The next ids to read, those of the draft included."""
        last = self.cached + count
        return [*self.ids[self.cached : last], *self.draft[: max(0, last - len(self.ids))]]

    def rows(self, count: int) -> int:
        """How many rows of logits reading so many ids gives: when all are read, one, and one for each drafted id."""
        return 1 + len(self.draft) if count == self.pending else 0

    @property
    def pending(self) -> int:
        """How many ids the next forward passes still have to read: 1 while decoding, and those of the draft."""
        return len(self.ids) + len(self.draft) - self.cached

    @property
    def readable(self) -> int:
        """How many of the pending ids may be read now; the last one waits for what the answer must begin with."""
        return self.pending if self.begun else self.pending - 1

    def piece(self, most: int) -> int:
        """How many ids to read next where `most` may be read at once.

        What is left for the next forward is nothing, or enough for a row of logits behind each id of the draft.
        """
        left = self.pending - min(self.readable, most)
        last = 1 + len(self.draft)
        if not self.begun or not 0 < left < last:
            return self.pending - left
        return max(self.pending - last, 0) or self.pending

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - len(self.request.prompt_ids)

    @property
    def at_limit(self) -> bool:
        """Whether there are as many new ids as the request allows."""
        limit = self.request.sampling.max_tokens
        return limit is not None and self.new_tokens >= limit

    def take(self, id: int, choice: float, report: IdLogprob | None) -> None:
        """A new id, by choice. A draft that says otherwise is dropped."""
        self.ids.append(id)
        self._choices.append(choice)
        if report is not None:
            self._reports.append(report)
        if self.draft and self.draft[0] == id:
            del self.draft[0]
        else:
            self.draft.clear()
            self.cached = min(self.cached, len(self.ids) - 1)

    def write(self, replaced: int, ids: tuple[int, ...]) -> None:
        """New ids, without a choice, in the place of the last `replaced` ones."""
        kept = len(self.ids) - replaced
        made = self.new_tokens - replaced
        chosen = sum(self._choices[made:])
        del self.ids[kept:], self._choices[made:]
        self._replaces += max(0, self._sent - made)
        self._sent = min(self._sent, made)
        self.ids += ids
        # What was chosen among stays known: the first of the new ids stands for it.
        self._choices += [chosen if place == 0 else 0.0 for place in range(len(ids))]
        self.cached = min(self.cached, kept)

    def send(self) -> None:
        """Hand over what is new since the last time."""
        start = len(self.request.prompt_ids) + self._sent
        ids = tuple(self.ids[start:])
        if ids:
            choices = tuple(self._choices[self._sent :]) if self.budget is not None else ()
            self.channel.put(Tokens(ids, tuple(self._reports[self._sent :]), self._replaces, choices))
            self._sent += len(ids)
            self._replaces = 0
