"""The one thread that owns the model. Each step: let new requests in, read a piece of their prompts, decode one id.

Prompts are read in pieces, between the decoding steps of the requests that are running already, so that a long prompt
does not stop their streams.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import torch

from chatlocal.engine.errors import ChatLocalError, EngineClosed, EngineDied
from chatlocal.engine.runtime import sampling
from chatlocal.engine.runtime.backend import Done, IdLogprob, Tokens
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.scoring import Scorer
from chatlocal.engine.runtime.sequence import Sequence

# Prompt ids for each forward, of one prompt and of all (padding counted): many while nobody is waiting for an id, so
# that prompts which arrive together start together; few while streams are running.
_PREFILL_IDLE = (512, 1024)
_PREFILL_BUSY = (64, 64)


@dataclass
class Stats:
    """Counts since the start."""

    forwards: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0


class Scheduler:
    """Runs sequences to their end. The thread starts with the first one.

    `submit` and `close` may be called from any thread; everything else happens on the scheduler's own.
    """

    def __init__(self, runner: Runner, scorer: Scorer, max_batch: int) -> None:
        self._runner = runner
        self._scorer = scorer
        self._max_batch = max_batch
        self._inbox: SimpleQueue[Sequence | None] = SimpleQueue()  # None: look whether to close
        self._waiting: list[Sequence] = []
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        # Held for the start and the end of the thread. Reentrant: a garbage collection can come to `close` from inside.
        self._ends = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._died: BaseException | None = None
        self.stats = Stats()

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. EngineClosed or EngineDied when there is no thread any more that could run it."""
        with self._ends:
            if self.over:
                raise self._refusal("This engine was closed: load it again with Engine.load.")
            self._inbox.put(sequence)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="chatlocal-scheduler", daemon=True)
                self._thread.start()

    @property
    def over(self) -> bool:
        """Whether nothing more can be submitted."""
        return self._closing or self._died is not None

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + self._inbox.qsize()

    def close(self) -> None:
        """Fail what runs and waits with EngineClosed, and end the thread. Safe to call twice and from any thread."""
        with self._ends:
            self._closing = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._inbox.put(None)
            thread.join()

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while not self._closing:
                    self._receive()
                    self._step()
        except BaseException as problem:  # a fault of ours: every caller must hear of it rather than wait for ever
            self._died = problem
        with self._ends:  # nothing is submitted from here on
            self._closing = True
            self._receive_all(block=False)
        left = [*self._waiting, *self._prefilling, *self._decoding]
        for group in (self._waiting, self._prefilling, self._decoding):
            group.clear()
        for sequence in left:
            sequence.channel.fail(self._refusal("This engine was closed while the request was running."))
        self._runner.close()

    def _refusal(self, closed: str) -> ChatLocalError:
        if self._died is None:
            return EngineClosed(closed)
        error = EngineDied(f"The engine stopped working ({self._died!r}): close it and load it again.")
        error.__cause__ = self._died
        return error

    def _receive(self) -> None:
        """Take what has arrived; wait for it when there is nothing else to do."""
        self._receive_all(block=not (self._waiting or self._prefilling or self._decoding))

    def _receive_all(self, block: bool) -> None:
        while True:
            try:
                arrived = self._inbox.get(block)
            except Empty:
                return
            block = False
            if arrived is not None:
                self._waiting.append(arrived)

    def _step(self) -> None:
        self._drop_cancelled()
        self._admit()
        scored = next((sequence for sequence in self._prefilling if sequence.given), None)
        if scored is not None:
            self._score(scored)  # one a step, between the steps of those that are running
        elif self._prefilling:
            self._prefill()
        if self._decoding:
            self._forward([(sequence, sequence.pending) for sequence in self._decoding], 0)

    def _drop_cancelled(self) -> None:
        for group in (self._waiting, self._prefilling, self._decoding):
            for sequence in [sequence for sequence in group if sequence.channel.closed]:
                group.remove(sequence)
                self._runner.release(sequence)
                self.stats.cancelled += 1

    def _admit(self) -> None:
        while self._waiting and self.running < self._max_batch:
            first = max(self._waiting, key=lambda sequence: sequence.request.priority)  # of equals, the oldest
            self._waiting.remove(first)
            self._prefilling.append(first)

    def _score(self, sequence: Sequence) -> None:
        """Report the log-probabilities of a sequence whose new ids are known, and end it."""
        try:
            logprobs, passes = self._scorer.logprobs(sequence.ids, sequence.given)
        except Exception as problem:
            self._end(sequence, error=problem)
            return
        self.stats.forwards += passes
        self.stats.tokens_in += len(sequence.ids) + len(sequence.given)
        if not all(map(math.isfinite, logprobs)):
            self._end(sequence, error=_no_numbers())
            return
        reports = tuple(map(IdLogprob, sequence.given, logprobs))
        sequence.channel.put(Tokens(sequence.given, reports))
        self._end(sequence, Done("length"))

    def _prefill(self) -> None:
        """One forward over the next pieces of the oldest prompts."""
        piece, together = _PREFILL_BUSY if self._decoding else _PREFILL_IDLE
        if len(self._prefilling) > len(self._decoding):
            together = _PREFILL_IDLE[1]  # more requests wait for their first id than for their next
        work: list[tuple[Sequence, int]] = []
        widest = 0
        for sequence in self._prefilling:
            count = min(sequence.pending, piece) if self._runner.in_pieces else sequence.pending
            widest = max(widest, count)
            if work and widest * (len(work) + 1) > together:
                break
            work.append((sequence, count))
        self._forward(work, len(self._decoding))

    def _forward(self, work: list[tuple[Sequence, int]], first_row: int) -> None:
        """Run the model and give each sequence whose ids are all read its next id."""
        for part in [work] if self._runner.shares else [[item] for item in work]:
            try:
                logits = self._runner.forward(part, first_row)
                self.stats.forwards += 1
                rows = [row for row, (sequence, _) in enumerate(part) if not sequence.pending]
                if rows:
                    self._decode(logits[rows] if len(rows) < len(part) else logits, [part[row][0] for row in rows])
            except Exception as problem:
                for sequence, _ in part:
                    if sequence in self._prefilling or sequence in self._decoding:
                        self._end(sequence, error=problem)

    def _decode(self, logits: torch.Tensor, sequences: list[Sequence]) -> None:
        reports = sampling.logprobs(logits, sequences)
        for sequence, row in zip(sequences, logits, strict=True):
            self._restrict(sequence, row)
        for sequence, finite in zip(sequences, logits.amax(-1).isfinite().tolist(), strict=True):
            if not finite and sequence.broken is None:
                sequence.broken = _no_numbers()
        for sequence, chosen, report in zip(sequences, sampling.choose(logits, sequences), reports, strict=True):
            if sequence in self._prefilling:
                self.stats.tokens_in += len(sequence.request.prompt_ids)
                self._prefilling.remove(sequence)
                self._decoding.append(sequence)
            if sequence.broken is not None:
                self._end(sequence, error=sequence.broken)
            else:
                self._take(sequence, chosen, logits, report)

    def _restrict(self, sequence: Sequence, row: torch.Tensor) -> None:
        """Apply penalties and the grammar's mask. What fails here ends its own sequence and no other."""
        try:
            sampling.penalize(row, sequence)
            if sequence.constraint_state is not None:
                row.masked_fill_(~sequence.constraint_state.mask().to(row.device), -torch.inf)
        except Exception as problem:
            sequence.broken = problem

    def _take(self, sequence: Sequence, chosen: int, logits: torch.Tensor, row: torch.Tensor | None) -> None:
        """Hand one new id over, and end the sequence where it ends."""
        chosen = self._within_reach(sequence, chosen)
        if chosen in sequence.request.stop_ids:
            self._end(sequence, Done("stop", chosen))
            return
        sequence.ids.append(chosen)
        self.stats.tokens_out += 1
        sampling.remember(sequence, chosen, logits.shape[-1], logits.device)
        reported: tuple[IdLogprob, ...] = ()
        if row is not None:
            reported = (sampling.report(row, chosen, sequence.request.logprobs or 0),)
        sequence.channel.put(Tokens((chosen,), reported))
        if self._grammar_ends(sequence, chosen):
            self._end(sequence, Done("stop"))
        elif sequence.broken is not None:
            self._end(sequence, error=sequence.broken)
        elif sequence.at_limit:
            self._end(sequence, Done("length"))

    def _within_reach(self, sequence: Sequence, chosen: int) -> int:
        """The id, or the one in its place that keeps the answer from being cut."""
        try:
            return chosen if sequence.budget is None else sequence.budget.within_reach(chosen)
        except Exception as problem:
            sequence.broken = problem
            return chosen

    def _grammar_ends(self, sequence: Sequence, chosen: int) -> bool:
        state = sequence.constraint_state
        if state is None:
            return False
        try:
            state.advance(chosen)
            return bool(state.done)
        except Exception as problem:
            sequence.broken = problem
            return False

    def _end(self, sequence: Sequence, done: Done | None = None, error: Exception | None = None) -> None:
        for group in (self._prefilling, self._decoding):
            if sequence in group:
                group.remove(sequence)
        self._runner.release(sequence)
        if error is not None:
            self.stats.failed += 1
            sequence.channel.fail(_named(error))
        elif done is not None:
            self.stats.finished += 1
            sequence.channel.put(done)


def _no_numbers() -> EngineDied:
    return EngineDied("The model's logits are not numbers: load it with dtype='float32' or 'bfloat16'.")


def _named(error: Exception) -> Exception:
    """The error as one of ours: what a forward pass raises can be anything."""
    if isinstance(error, ChatLocalError):
        return error
    named = EngineDied(f"A step of the model failed ({type(error).__name__}: {error}): the request may be tried again.")
    named.__cause__ = error
    return named
