"""Which ids are read before they are chosen: what to propose for each sequence, and how much of it pays.

Proposals come from three places: the likely spelling behind forced text (which the decoder has put into `draft`
already), values that are copied from the prompt, and prompt lookup. How often each kind of guess was right is counted,
for all and for each sequence; what a forward costs by the number of its ids is measured. A step reads as many drafted
ids as promise the most ids for its time, which may be none. What is proposed and not read is compared with what comes
all the same, so that a kind of guess that has become good is found again at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from chatlocal.engine.constraints.constraint import ConstraintState
from chatlocal.engine.errors import ChatLocalError
from chatlocal.engine.runtime.prompt_lookup import PromptLookup
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.source_text import SourceText
from chatlocal.engine.runtime.step_costs import Costs, StepCosts
from chatlocal.engine.runtime.value_draft import value_draft

# Ids of a draft at most, and of those what prompt lookup finds.
_LONGEST = 40
_LOOKED_UP = 16
# So many ids that were there before in a row are more telling than anything else.
_SURE = 5
# How fast what is known of a kind of guess follows what happens: for one sequence, and for all.
_OF_ONE, _OF_ALL = 0.2, 0.03
# Until something is known: this often a guess is right.
_UNKNOWN = 0.5
# A draft must promise so much more than none: what is measured is never exact.
_GAIN = 1.01
# After so many steps without a draft that paid, one is looked for in one step out of so many alone.
_PATIENCE, _SELDOM = 16, 8

Kind = str | None
"""What was guessed with an id; None where it was certain if those before it were right."""


@dataclass(slots=True)
class _Proposal:
    """`steps` are the numbers of ids that it may be cut to, each with the chance that these stand.

    Each step saves a choice: it is a guessed id with the certain ones behind it. What is read of them alone saves
    nothing, for the next choice is made behind the last of them.
    """

    ids: list[int] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    steps: list[tuple[int, float]] = field(default_factory=list)


class _Memory:
    """What is kept for one sequence."""

    def __init__(self) -> None:
        self.lookup = PromptLookup()
        self.unchanged = 0
        """How many ids have stayed the same since the lookup was given them."""
        self.source: SourceText | None = None
        self.right: dict[str, float] = {}
        self.proposal = _Proposal()
        self.proposed_at = 0


class Drafter:
    """Sets the drafts of sequences. `padded`: all sequences of a forward cost as many ids as the longest."""

    def __init__(self, costs: Costs, *, padded: bool) -> None:
        self.costs = costs
        self._padded = padded
        self._right: dict[str, float] = {}
        self._unread = 0
        """Steps in a row in which nothing was drafted."""
        self._memories: WeakKeyDictionary[Sequence, _Memory] = WeakKeyDictionary()

    @classmethod
    def fitting(cls, runner: Runner) -> Drafter | None:
        """A drafter that learns what the runner's forwards cost; None where what was read cannot be taken back."""
        if not (runner.takes_back and runner.several):
            return None
        costs = StepCosts()
        costs.watch(runner)
        return cls(costs, padded=runner.shares and not runner.ragged)

    def propose(self, sequences: list[Sequence]) -> None:
        """Set the drafts for the next forward over these sequences; those that they have come first in them."""
        if not sequences:
            return
        if self._unread >= _PATIENCE and self._unread % _SELDOM:
            self._unread += 1
            for sequence in sequences:
                sequence.draft = []
                memory = self._memories.setdefault(sequence, _Memory())
                memory.unchanged = min(memory.unchanged, sequence.unchanged)
            return
        proposals = [self._proposal(sequence) for sequence in sequences]
        lengths = self._lengths(sequences, proposals)
        for sequence, proposal, length in zip(sequences, proposals, lengths, strict=True):
            sequence.draft = proposal.ids[:length]
        self._unread = 0 if any(lengths) else self._unread + 1

    def learn(self, sequence: Sequence) -> None:
        """Compare what was proposed with what came."""
        memory = self._memories.get(sequence)
        if memory is None:
            return
        new = sequence.ids[memory.proposed_at :]
        for guessed, kind, came in zip(memory.proposal.ids, memory.proposal.kinds, new, strict=False):
            if kind is not None:
                right = self._right.get(kind, _UNKNOWN)
                own = memory.right.get(kind, right)
                self._right[kind] = right + _OF_ALL * ((guessed == came) - right)
                memory.right[kind] = own + _OF_ONE * ((guessed == came) - own)
            if guessed != came:
                break
        memory.proposal = _Proposal()

    def _proposal(self, sequence: Sequence) -> _Proposal:
        memory = self._memories.setdefault(sequence, _Memory())
        memory.lookup.update(sequence.ids, min(memory.unchanged, sequence.unchanged))
        memory.unchanged = len(sequence.ids)
        limit = sequence.request.sampling.max_tokens
        room = _LONGEST if limit is None else min(_LONGEST, limit - sequence.new_tokens - 1)
        proposal = _Proposal()
        if room > 0:
            ids, kinds = self._guessed(sequence, memory)
            chance = 1.0
            for id, kind in zip(ids[:room], kinds, strict=False):
                if id in sequence.request.stop_ids:
                    break
                if kind is not None:
                    chance *= memory.right.get(kind, self._right.get(kind, _UNKNOWN))
                elif proposal.steps:
                    proposal.steps.pop()
                proposal.ids.append(id)
                proposal.kinds.append(kind)
                proposal.steps.append((len(proposal.ids), chance))
        memory.proposal, memory.proposed_at = proposal, len(sequence.ids)
        return proposal

    def _guessed(self, sequence: Sequence, memory: _Memory) -> tuple[list[int], list[Kind]]:
        """Ids that may come next, as far as they are allowed, and what each of them guesses."""
        likely = sequence.draft
        kinds: list[Kind] = ["likely"] * len(likely)
        state = None if sequence.budget is None else sequence.budget.state
        found = memory.lookup.find([*sequence.ids[-_LOOKED_UP:], *likely], _LOOKED_UP)
        if state is not None and (found is None or found.matched < _SURE or not likely):
            if memory.source is None:
                memory.source = _source(sequence, state)
            value = value_draft(state, memory.source, likely)
            if value is not None:
                return [*likely, *value[0]], [*kinds, *value[1]]
        if found is None:
            return likely, kinds
        kind = f"{min(found.matched, _SURE)} ids{'' if state is None else ' in a form'}"
        ids = [*likely, *found.ids]
        kinds += [kind] * len(found.ids)
        return (ids if state is None else _allowed(state, ids)), kinds

    def _lengths(self, sequences: list[Sequence], proposals: list[_Proposal]) -> list[int]:
        """How many ids of each proposal to read, for the most choices in the least time."""
        waiting = [sequence.pending - len(sequence.draft) for sequence in sequences]
        if self._padded:
            return self._evenly(waiting, proposals)
        offers = sorted(
            ((chance, -end, place) for place, proposal in enumerate(proposals) for end, chance in proposal.steps),
            reverse=True,
        )
        promised, ids = float(len(sequences)), sum(waiting)
        best, taken = _GAIN * promised / self.costs.seconds(ids), 0
        lengths = [0] * len(sequences)
        ends = []
        for chance, end, place in offers:
            promised += chance
            ids += -end - lengths[place]
            lengths[place] = -end
            ends.append((place, -end))
            rate = promised / self.costs.seconds(ids)
            if rate > best:
                best, taken = rate, len(ends)
        chosen = [0] * len(sequences)
        for place, end in ends[:taken]:
            chosen[place] = end
        return chosen

    def _evenly(self, waiting: list[int], proposals: list[_Proposal]) -> list[int]:
        """The same where every row is as wide as the widest: what is not wider costs nothing."""
        widths = {count + end for count, one in zip(waiting, proposals, strict=True) for end, _ in one.steps}
        narrow = max(waiting)
        best, lengths = 0.0, [0] * len(waiting)
        for width in sorted({narrow, *(width for width in widths if width > narrow)}):
            promised, fitting = float(len(waiting)), []
            for count, proposal in zip(waiting, proposals, strict=True):
                steps = [step for step in proposal.steps if count + step[0] <= width]
                promised += sum(chance for _, chance in steps)
                fitting.append(steps[-1][0] if steps else 0)
            rate = promised / self.costs.seconds(width * len(waiting))
            if rate > (best if width == narrow else _GAIN * best):
                best, lengths = rate, fitting
        return lengths


def _source(sequence: Sequence, state: ConstraintState) -> SourceText:
    """The prompt as text; control tokens and what has no text part it."""
    texts = state.tokens.texts
    return SourceText(b"".join((texts[id] if id < len(texts) else b"") or b"\n" for id in sequence.request.prompt_ids))


def _allowed(state: ConstraintState, ids: list[int]) -> list[int]:
    """As many of the ids as the grammar lets follow."""
    there = state.copy()
    for count, id in enumerate(ids):
        if id in state.end_ids:
            return ids[:count]
        try:
            there.advance(id)
        except ChatLocalError:
            return ids[:count]
    return ids
