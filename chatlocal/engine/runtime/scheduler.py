"""The one thread that owns the model. Each step: let new requests in, read a piece of their prompts, decode one id.

Prompts are read in pieces, between the decoding steps of the requests that are running already, so that a long prompt
does not stop their streams.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import torch

from chatlocal.engine.errors import EngineClosed, EngineDied
from chatlocal.engine.runtime import sampling
from chatlocal.engine.runtime.backend import Done, IdLogprob, Tokens
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.sequence import Sequence

# Prompt ids for each forward: many while nobody else is waiting for an id, few while streams are running.
_PREFILL_IDLE = 512
_PREFILL_BUSY = 64


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
    """Runs sequences to their end; `submit` may be called from any thread. The thread starts with the first one."""

    def __init__(self, runner: Runner, max_batch: int) -> None:
        self._runner = runner
        self._max_batch = max_batch
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._died: BaseException | None = None
        self.stats = Stats()

    def submit(self, sequence: Sequence) -> None:
        with self._changed:
            if self._died is not None:
                raise EngineDied(f"The engine stopped working ({self._died!r}): load it again.") from self._died
            if self._closing:
                raise EngineClosed("This engine was closed: load it again with Engine.load.")
            self._waiting.append(sequence)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="chatlocal-scheduler", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wake(self) -> None:
        """Something was cancelled: drop it now, also when every other request waits."""
        with self._changed:
            self._changed.notify_all()

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Fail what runs and waits with EngineClosed, and end the thread. Safe to call twice and from any thread."""
        with self._changed:
            self._closing = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._work_arrived():
                    self._step()
            error: BaseException = EngineClosed("This engine was closed while the request was running.")
        except BaseException as problem:  # a fault of ours: every caller must hear of it rather than wait for ever
            self._died = problem
            error = EngineDied(f"The engine stopped working ({problem!r}): load it again.")
            error.__cause__ = problem
        with self._changed:
            left = [*self._waiting, *self._prefilling, *self._decoding]
            self._waiting.clear()
            self._prefilling.clear()
            self._decoding.clear()
        for sequence in left:
            sequence.stream.fail(error)
        self._runner.close()

    def _work_arrived(self) -> bool:
        with self._changed:
            while not (self._closing or self._waiting or self._prefilling or self._decoding):
                self._changed.wait()
            return not self._closing

    def _step(self) -> None:
        self._drop_cancelled()
        self._admit()
        if self._prefilling:
            self._prefill()
        if self._decoding:
            self._forward([(sequence, sequence.pending) for sequence in self._decoding], 0)

    def _drop_cancelled(self) -> None:
        with self._changed:
            gone = [sequence for sequence in self._waiting if sequence.stream.closed]
            for sequence in gone:
                self._waiting.remove(sequence)
        for group in (self._prefilling, self._decoding):
            for sequence in [sequence for sequence in group if sequence.stream.closed]:
                group.remove(sequence)
                self._runner.release(sequence)
                gone.append(sequence)
        self.stats.cancelled += len(gone)

    def _admit(self) -> None:
        with self._changed:
            while self._waiting and self.running < self._max_batch:
                self._prefilling.append(self._waiting.popleft())

    def _prefill(self) -> None:
        """One forward over the next pieces of the oldest prompts."""
        budget = _PREFILL_BUSY if self._decoding else _PREFILL_IDLE
        work: list[tuple[Sequence, int]] = []
        widest = 0
        for sequence in self._prefilling:
            count = min(sequence.pending, budget)
            widest = max(widest, count)
            if work and widest * (len(work) + 1) > budget:
                break
            work.append((sequence, count))
        self._forward(work, len(self._decoding))

    def _forward(self, work: list[tuple[Sequence, int]], first_row: int) -> None:
        """Run the model and give each sequence whose ids are all read its next id."""
        try:
            logits = self._runner.forward(work, first_row)
            self.stats.forwards += 1
            rows = [row for row, (sequence, _) in enumerate(work) if not sequence.pending]
            if rows:
                self._decode(logits[rows] if len(rows) < len(work) else logits, [work[row][0] for row in rows])
        except Exception as problem:
            for sequence, _ in work:
                self._end(sequence, error=problem)

    def _decode(self, logits: torch.Tensor, sequences: list[Sequence]) -> None:
        reports = sampling.logprobs(logits, sequences)
        masks = [self._mask(sequence) for sequence in sequences]
        for sequence, chosen, row in zip(sequences, sampling.choose(logits, sequences, masks), reports, strict=True):
            if sequence in self._prefilling:
                self.stats.tokens_in += len(sequence.request.prompt_ids)
                self._prefilling.remove(sequence)
                self._decoding.append(sequence)
            if sequence.broken is not None:
                self._end(sequence, error=sequence.broken)
            else:
                self._take(sequence, chosen, logits, row)

    def _mask(self, sequence: Sequence) -> torch.Tensor | None:
        """The ids that the sequence's grammar allows. A grammar that fails ends its own sequence and no other."""
        if sequence.constraint_state is None:
            return None
        try:
            return sequence.constraint_state.mask()
        except Exception as problem:
            sequence.broken = problem
            return None

    def _take(self, sequence: Sequence, chosen: int, logits: torch.Tensor, row: torch.Tensor | None) -> None:
        """Hand one new id over, and end the sequence where it ends."""
        if chosen in sequence.request.stop_ids:
            self._end(sequence, Done("stop", chosen))
            return
        sequence.ids.append(chosen)
        self.stats.tokens_out += 1
        sampling.remember(sequence, chosen, logits.shape[-1], logits.device)
        reported: tuple[IdLogprob, ...] = ()
        if row is not None:
            reported = (sampling.report(row, chosen, sequence.request.logprobs or 0),)
        sequence.stream.put(Tokens((chosen,), reported))
        if self._grammar_ends(sequence, chosen):
            self._end(sequence, Done("stop"))
        elif sequence.broken is not None:
            self._end(sequence, error=sequence.broken)
        elif len(sequence.ids) >= sequence.limit:
            self._end(sequence, Done("length"))

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
            sequence.stream.fail(error)
        elif done is not None:
            self.stats.finished += 1
            sequence.stream.put(done)
