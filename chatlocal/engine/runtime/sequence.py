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
        self._read: list[int] = []
        self._drafted_from = 0
        self.unchanged = 0
        """How many of the first ids are those that the last forward read."""
        self.mask: torch.Tensor | None = None
        """Which ids may follow, bool [vocabulary], where that is known before the logits are."""
        self.broken: Exception | None = None
        """What went wrong with this sequence alone; it ends with it."""
        self.random = random.Random(request.sampling.seed)
        self.counts: torch.Tensor | None = None
        """Occurrences of every id among the new ones, int32 [vocabulary]; kept only where a penalty needs them."""
        self.prompt_seen: torch.Tensor | None = None
        """Which ids the prompt has, bool [vocabulary]; kept only where the repetition penalty needs them."""
        # What the scheduler knows of it.
        self.arrival = self.turn = 0
        """When it was submitted, and when a piece of it was read last."""
        self.admitted = self.started = self.counted = False
        """Whether it ran before, has its place in the cache, and has read its prompt."""
        self.reused: int | None = None
        """How many ids of the prompt needed no forward; None before it is known."""
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

    def expect(self) -> list[int]:
        """Take the draft, which has been read, for what the ids to come are compared with; gives it."""
        self.unchanged = self._drafted_from = len(self.ids)
        self._read, self.draft = self.draft, []
        return self._read

    @property
    def follows(self) -> bool:
        """Whether all ids since `expect` are as they were read: then there is a row of logits behind the last one."""
        new = len(self.ids) - self.unchanged
        return new <= len(self._read) and self.ids[self.unchanged :] == self._read[:new]

    def settle(self) -> int:
        """Take back what was read and is not what stands; gives how many ids of the draft stand."""
        same = _common(self.ids[self.unchanged :], self._read)
        accepted = max(0, same - (self._drafted_from - self.unchanged))
        self.cached = self.unchanged + same
        self._read = []
        return accepted

    def foretell(self, most: int) -> None:
        """Draft the given ids that come next, so that one forward of `most` new ids has logits for as many."""
        if not self.draft:
            self.draft = list(self.given[self.new_tokens : -1][: most - 1])

    def foretold(self) -> tuple[int, ...]:
        """The given ids that the logits behind the draft are about, once it is read."""
        count, self.draft = 1 + len(self.draft), []
        return self.given[self.new_tokens :][:count]

    def rest(self) -> None:
        """Give its place in the cache up. All ids are read again when it goes on."""
        self.cached = 0
        self.draft = []
        self.started = False

    def take(self, id: int, choice: float, report: IdLogprob | None) -> None:
        """A new id, by choice."""
        self.ids.append(id)
        self._choices.append(choice)
        if report is not None:
            self._reports.append(report)

    def write(self, replaced: int, ids: tuple[int, ...]) -> None:
        """New ids, without a choice, in the place of the last `replaced` ones."""
        kept = len(self.ids) - replaced
        made = self.new_tokens - replaced
        chosen = sum(self._choices[made:])
        if kept < self.unchanged:
            self._read = self.ids[kept : self.unchanged] + self._read
            self.unchanged = kept
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
            self.channel.put(Tokens(ids, tuple(self._reports[self._sent :]), self._replaces, choices, self.reused or 0))
            self._sent += len(ids)
            self._replaces = 0


def _common(one: list[int], other: list[int]) -> int:
    """How many ids two lists begin with alike."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
