"""From logits to ids: what is chosen, what must follow it, and where an answer ends.

A draft is checked here too: the ids of a sequence's draft were read along with it, so there are logits behind each, and
as long as the ids that are chosen and written are those that were drafted, the next one is chosen from those. What is
chosen does not depend on the draft.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from chatlocal.engine.errors import EngineDied
from chatlocal.engine.runtime import sampling
from chatlocal.engine.runtime.backend import Done, IdLogprob
from chatlocal.engine.runtime.drafting import Drafter
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.sequence import Sequence

End = Done | Exception


@dataclass
class Stats:
    """Counts since the start.

    `tokens_out` are the ids of all answers; `forced` of them had no alternative, `drafted` ids were read before they
    were chosen and `accepted` of these were chosen. `selected` forwards computed the logits of allowed ids alone.
    `cached_prompt_tokens` of all prompts needed no forward; `preempted` counts how often one made room for others.
    """

    forwards: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    forced: int = 0
    drafted: int = 0
    accepted: int = 0
    selected: int = 0
    cached_prompt_tokens: int = 0
    preempted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0


class Decoder:
    """Gives sequences their next ids.

    `vocabulary` is the width of the logits. `forced_text`: what a grammar forces is written without being chosen.
    `drafter` proposes what to read along with each next id; None for no drafts but those that forced text makes.
    """

    def __init__(
        self,
        runner: Runner,
        stats: Stats,
        vocabulary: int,
        device: torch.device,
        *,
        forced_text: bool,
        drafter: Drafter | None = None,
    ) -> None:
        self._drafter = drafter if runner.takes_back and runner.several else None
        self._stats = stats
        self._vocabulary = vocabulary
        self._device = device
        self._takes_back = runner.takes_back
        self._forces = forced_text and runner.several

    def decode(self, logits: torch.Tensor, sequences: list[Sequence]) -> dict[Sequence, End]:
        """Choose ids from `logits` (float32 [rows, vocabulary]; 1 + len(draft) rows for each sequence) and send them.

        Gives the sequences that end here, and how.
        """
        ends: dict[Sequence, End] = {}
        deciding: list[tuple[Sequence, int]] = []
        # For each sequence its row of logits less the number of its ids: it goes on where its next row is.
        offsets: dict[Sequence, int] = {}
        row = 0
        for sequence in sequences:
            deciding.append((sequence, row))
            offsets[sequence] = row - len(sequence.ids)
            drafted = len(sequence.expect())
            self._stats.drafted += drafted
            row += 1 + drafted
        while deciding:
            rows = [row for _, row in deciding]
            asked = [sequence for sequence, _ in deciding]
            ends |= self._choose(logits if len(rows) == len(logits) else logits[rows], asked)
            if self._drafter is not None:
                self._drafter.costs.done()
            deciding = []
            for sequence in asked:
                sequence.draft = []
                if sequence not in ends and (end := self.go_on(sequence)) is not None:
                    ends[sequence] = end
                if sequence not in ends and sequence.follows:
                    deciding.append((sequence, offsets[sequence] + len(sequence.ids)))
        for sequence in sequences:
            self._stats.accepted += sequence.settle()
            sequence.send()
        if self._drafter is not None:
            for sequence in sequences:
                self._drafter.learn(sequence)
            self._drafter.propose([sequence for sequence in sequences if sequence not in ends])
        return ends

    def go_on(self, sequence: Sequence) -> End | None:
        """Write what must come next, and find out what may follow it."""
        if sequence.budget is None or sequence.request.logprobs is not None:
            return None
        try:
            if not self._forces:
                sequence.mask = sequence.budget.state.mask()
                return None
            while not self._write_forced(sequence):
                mask = sequence.budget.state.mask()
                if int(mask.count_nonzero()) != 1:
                    sequence.mask = mask
                    return None
                # No choice again: the one id is as good as chosen.
                only = int(mask.nonzero())
                sequence.draft.clear()
                end = self._take(sequence, only, 0.0, None)
                self._stats.forced += 1
                if end is not None:
                    return end
            return Done("stop") if sequence.budget.state.done else Done("length")
        except Exception as problem:
            return problem

    def _write_forced(self, sequence: Sequence) -> bool:
        """Write forced text; says whether the answer is over with it."""
        budget = sequence.budget
        assert budget is not None
        forced = budget.advance_forced(None if self._takes_back else len(sequence.ids) - sequence.cached)
        if forced is None:
            return False
        for id, change in [*((id, -1) for id in forced.replaced), *((id, 1) for id in forced.ids)]:
            sampling.remember(sequence, id, self._vocabulary, self._device, change)
        sequence.write(len(forced.replaced), forced.ids)
        self._stats.forced += len(forced.ids)
        self._stats.tokens_out += forced.grown
        if self._takes_back:
            limit = sequence.request.sampling.max_tokens
            room = len(forced.likely) if limit is None else limit - sequence.new_tokens - 1
            sequence.draft = list(forced.likely[: max(0, room)])
        return budget.state.done or sequence.at_limit

    def _choose(self, logits: torch.Tensor, sequences: list[Sequence]) -> dict[Sequence, End]:
        """One id for each row; float32 [sequences, vocabulary]."""
        reports = sampling.logprobs(logits, sequences)
        logits, allowed = self._restrict(logits, sequences)
        for sequence, row in zip(sequences, logits, strict=True):
            try:
                sampling.penalize(row, sequence)
            except Exception as problem:
                sequence.broken = problem
        ends: dict[Sequence, End] = {}
        chosen_ids = sampling.choose(logits, sequences)
        chosen_of = {one: id for one, id in zip(sequences, chosen_ids, strict=True) if id is not None}
        choices = _at(allowed, chosen_of)
        for sequence, chosen, report in zip(sequences, chosen_ids, reports, strict=True):
            if chosen is None and sequence.broken is None:
                sequence.broken = no_numbers()
            end: End | None = sequence.broken
            if sequence.broken is None and chosen is not None:
                end = self._accept(sequence, chosen, report, allowed.get(sequence), choices.get(sequence, 0.0))
            if end is not None:
                ends[sequence] = end
        return ends

    def _restrict(
        self, logits: torch.Tensor, sequences: list[Sequence]
    ) -> tuple[torch.Tensor, dict[Sequence, torch.Tensor]]:
        """The logits with -inf at what no grammar allows; what fails here ends its own sequence and no other.

        Also the log-probabilities of what is allowed, without penalties, float32 [vocabulary] for each constrained one.
        """
        places: list[int] = []
        masks: list[torch.Tensor] = []
        for place, sequence in enumerate(sequences):
            if sequence.budget is None:
                continue
            try:
                masks.append(sequence.budget.state.mask() if sequence.mask is None else sequence.mask)
                places.append(place)
            except Exception as problem:
                sequence.broken = problem
            sequence.mask = None
        if not places:
            return logits, {}
        mask = torch.stack(masks).to(logits.device)
        if len(places) == len(logits):
            logits = held = torch.where(mask, logits, -torch.inf)
        else:
            held = torch.where(mask, logits[places], -torch.inf)
            logits[places] = held
        allowed = held.log_softmax(-1)
        return logits, {sequences[place]: row for place, row in zip(places, allowed, strict=True)}

    def _accept(
        self,
        sequence: Sequence,
        chosen: int,
        report: torch.Tensor | None,
        allowed: torch.Tensor | None,
        choice: float,
    ) -> End | None:
        """Take a chosen id, or the one in its place that keeps the answer from being cut.

        `choice` is the log-probability of the chosen id among those `allowed`.
        """
        try:
            if sequence.budget is not None:
                taken = sequence.budget.within_reach(chosen)
                if taken != chosen and allowed is not None:
                    choice = float(allowed[taken])
                chosen = taken
            reported = None
            if report is not None:
                reported = sampling.report(report, chosen, sequence.request.logprobs or 0)
            # An id that the budget put in is no choice of the model.
            return self._append(sequence, chosen, choice if choice > -torch.inf else 0.0, reported)
        except Exception as problem:
            return problem

    def _take(self, sequence: Sequence, id: int, choice: float, report: IdLogprob | None) -> End | None:
        assert sequence.budget is not None
        return self._append(sequence, sequence.budget.within_reach(id), choice, report)

    def _append(self, sequence: Sequence, id: int, choice: float, report: IdLogprob | None) -> End | None:
        """Add a new id; how the sequence ends, if it ends there."""
        if id in sequence.request.stop_ids:
            return Done("stop", id, choice)
        sequence.take(id, choice, report)
        self._stats.tokens_out += 1
        sampling.remember(sequence, id, self._vocabulary, self._device)
        if sequence.budget is not None:
            sequence.budget.state.advance(id)
            if sequence.budget.state.done:
                return Done("stop")
        return Done("length") if sequence.at_limit else None


def _at(rows: dict[Sequence, torch.Tensor], ids: dict[Sequence, int]) -> dict[Sequence, float]:
    """The entries of rows at their sequences' ids, fetched at once."""
    wanted = [sequence for sequence in rows if sequence in ids]
    if not wanted:
        return {}
    entries = torch.stack([rows[sequence][ids[sequence]] for sequence in wanted]).tolist()
    return dict(zip(wanted, entries, strict=True))


def no_numbers() -> EngineDied:
    return EngineDied("The model's logits are not numbers: load it with dtype='float32' or 'bfloat16'.")
