"""From logits to ids: what is chosen, what must follow it, and where an answer ends.

A draft is checked here too: the ids of a sequence's draft were read along with it, so there are logits behind each, and
as long as the id that is chosen is the one that was drafted, the next one is chosen from those. What is chosen does not
depend on the draft.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from chatlocal.engine.errors import EngineDied
from chatlocal.engine.runtime import sampling
from chatlocal.engine.runtime.backend import Done, IdLogprob
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.sequence import Sequence

End = Done | Exception


@dataclass
class Stats:
    """Counts since the start.

    `tokens_out` are the ids of all answers; `forced` of them had no alternative, `drafted` ids were read before they
    were chosen and `accepted` of these were chosen. `selected` forwards computed the logits of allowed ids alone.
    """

    forwards: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    forced: int = 0
    drafted: int = 0
    accepted: int = 0
    selected: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0


class Decoder:
    """Gives sequences their next ids.

    `vocabulary` is the width of the logits. `forced_text`: what a grammar forces is written without being chosen.
    """

    def __init__(
        self, runner: Runner, stats: Stats, vocabulary: int, device: torch.device, *, forced_text: bool
    ) -> None:
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
        first, deciding = 0, []
        for sequence in sequences:
            deciding.append((sequence, first))
            first += 1 + len(sequence.draft)
            self._stats.drafted += len(sequence.draft)
        while deciding:
            rows = [row for _, row in deciding]
            drafted = [sequence.draft[0] if sequence.draft else None for sequence, _ in deciding]
            ends |= self._choose(logits if len(rows) == len(logits) else logits[rows], [one for one, _ in deciding])
            deciding = [
                (sequence, row + 1)
                for (sequence, row), draft in zip(deciding, drafted, strict=True)
                if sequence not in ends and draft == sequence.ids[-1]
            ]
            self._stats.accepted += len(deciding)
        for sequence in sequences:
            if sequence not in ends and (end := self.go_on(sequence)) is not None:
                ends[sequence] = end
            sequence.send()
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
                if int(mask.sum()) != 1:
                    sequence.mask = mask
                    return None
                # No choice again: the one id is as good as chosen.
                only = int(mask.int().argmax())
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
        """One id for each row; float32 [sequences, vocabulary], changed in place."""
        reports = sampling.logprobs(logits, sequences)
        bases = [self._restrict(sequence, row) for sequence, row in zip(sequences, logits, strict=True)]
        for sequence, finite in zip(sequences, logits.amax(-1).isfinite().tolist(), strict=True):
            if not finite and sequence.broken is None:
                sequence.broken = no_numbers()
        ends: dict[Sequence, End] = {}
        chosen_ids = sampling.choose(logits, sequences)
        for sequence, chosen, report, base in zip(sequences, chosen_ids, reports, bases, strict=True):
            end = self._accept(sequence, chosen, report, base) if sequence.broken is None else sequence.broken
            if end is not None:
                ends[sequence] = end
        return ends

    def _restrict(self, sequence: Sequence, row: torch.Tensor) -> torch.Tensor | None:
        """Apply the grammar's mask and penalties. What fails here ends its own sequence and no other.

        Gives the log-probabilities of what is allowed, without penalties, where there is a constraint.
        """
        allowed: torch.Tensor | None = None
        try:
            if sequence.budget is not None:
                mask = sequence.budget.state.mask() if sequence.mask is None else sequence.mask
                sequence.mask = None
                row.masked_fill_(~mask.to(row.device), -torch.inf)
                allowed = row.log_softmax(-1)
            sampling.penalize(row, sequence)
        except Exception as problem:
            sequence.broken = problem
        return allowed

    def _accept(
        self, sequence: Sequence, chosen: int, report: torch.Tensor | None, allowed: torch.Tensor | None
    ) -> End | None:
        """Take a chosen id, or the one in its place that keeps the answer from being cut."""
        try:
            if sequence.budget is not None:
                chosen = sequence.budget.within_reach(chosen)
            choice = 0.0 if allowed is None else float(allowed[chosen])
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


def no_numbers() -> EngineDied:
    return EngineDied("The model's logits are not numbers: load it with dtype='float32' or 'bfloat16'.")
