"""The one thread that owns the model. Each step: let new requests in, read a piece of their prompts, decode one id.

Prompts are read in pieces, between the decoding steps of the requests that are running already, so that a long prompt
does not stop their streams.
"""

from __future__ import annotations

import math
import threading
from contextlib import nullcontext
from queue import Empty, SimpleQueue

import torch

from chatlocal.engine.errors import ChatLocalError, EngineClosed, EngineDied
from chatlocal.engine.runtime.backend import Done, IdLogprob, Tokens
from chatlocal.engine.runtime.decoding import Decoder, End, Stats, no_numbers
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.scoring import Scorer
from chatlocal.engine.runtime.selective_head import SelectiveHead
from chatlocal.engine.runtime.sequence import Sequence

# Prompt ids for each forward, of one prompt and of all (padding counted): many while nobody is waiting for an id, so
# that prompts which arrive together start together; few while streams are running.
_PREFILL_IDLE = (512, 1024)
_PREFILL_BUSY = (64, 64)


class Scheduler:
    """Runs sequences to their end. The thread starts with the first one.

    `submit` and `close` may be called from any thread; everything else happens on the scheduler's own.
    """

    def __init__(
        self,
        runner: Runner,
        scorer: Scorer,
        decoder: Decoder,
        stats: Stats,
        max_batch: int,
        head: SelectiveHead | None = None,
    ) -> None:
        self._runner = runner
        self._scorer = scorer
        self._decoder = decoder
        self._head = head
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
        self.stats = stats

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

    def wake(self) -> None:
        """Have it look again at a sequence that has become ready, or was closed before it was."""
        self._inbox.put(None)

    def _receive(self) -> None:
        """Take what has arrived; wait for it when there is nothing else to do."""
        admits = bool(self._waiting) and self._active < self._max_batch
        reads = any(self._reads(one) or (one.ready and not one.begun) for one in self._prefilling)
        self._receive_all(block=not (admits or reads or self._decoding))

    @property
    def _active(self) -> int:
        """How many run. One that has read what it may and waits for its constraint keeps nobody out."""
        return len(self._decoding) + sum(bool(one.ready or self._reads(one)) for one in self._prefilling)

    def _reads(self, sequence: Sequence) -> int:
        """How many ids of a prompt can be read next, if all of them are taken at once."""
        return sequence.readable if self._runner.in_pieces or sequence.begun else 0

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
        self._begin()
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
                self.stats.cancelled += sequence.ready  # one that was refused while it was read was none

    def _admit(self) -> None:
        while self._waiting and self._active < self._max_batch:
            first = max(self._waiting, key=lambda sequence: sequence.request.priority)  # of equals, the oldest
            self._waiting.remove(first)
            self._prefilling.append(first)

    def _begin(self) -> None:
        """Write the beginnings of answers that must be so: they are read together with the last id of the prompt."""
        for sequence in [one for one in self._prefilling if one.ready and not one.begun]:
            if len(self._decoding) + sum(one.begun for one in self._prefilling) >= self._max_batch:
                return  # its place was taken while it waited for its constraint
            sequence.begun = True
            end = self._decoder.go_on(sequence)
            sequence.send()
            if end is not None:
                self._end_with(sequence, end)

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
            self._end(sequence, error=no_numbers())
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
            count = sequence.piece(piece) if self._runner.in_pieces else self._reads(sequence)
            if not count:
                continue
            widest = max(widest, count)
            if work and widest * (len(work) + 1) > together:
                break
            work.append((sequence, count))
        if work:
            self._forward(work, len(self._decoding))

    def _forward(self, work: list[tuple[Sequence, int]], first_row: int) -> None:
        """Run the model and give each sequence whose ids are all read its next ids."""
        for part in [work] if self._runner.shares else [[item] for item in work]:
            try:
                deciding = [sequence for sequence, count in part if sequence.rows(count)]
                logits = self._logits(part, first_row, deciding)
                if deciding:
                    self._decode(logits, deciding)
            except Exception as problem:
                for sequence, _ in part:
                    if sequence in self._prefilling or sequence in self._decoding:
                        self._end(sequence, error=problem)

    def _logits(self, work: list[tuple[Sequence, int]], first_row: int, deciding: list[Sequence]) -> torch.Tensor:
        """One forward; -inf at ids that no sequence may have next, where it pays to leave them out."""
        ids = None if self._head is None else self._head.worthwhile(deciding)
        with nullcontext() if self._head is None or ids is None else self._head.only(ids):
            logits = self._runner.forward(work, first_row)
        self.stats.forwards += 1
        if self._head is None or ids is None:
            return logits
        self.stats.selected += 1
        return self._head.spread(logits, ids)

    def _decode(self, logits: torch.Tensor, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            if sequence in self._prefilling:
                self.stats.tokens_in += len(sequence.request.prompt_ids)
                self._prefilling.remove(sequence)
                self._decoding.append(sequence)
        for sequence, end in self._decoder.decode(logits, sequences).items():
            self._end_with(sequence, end)

    def _end_with(self, sequence: Sequence, end: End) -> None:
        if isinstance(end, Exception):
            self._end(sequence, error=end)
        else:
            self._end(sequence, end)

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


def _named(error: Exception) -> Exception:
    """The error as one of ours: what a forward pass raises can be anything."""
    if isinstance(error, ChatLocalError):
        return error
    named = EngineDied(f"A step of the model failed ({type(error).__name__}: {error}): the request may be tried again.")
    named.__cause__ = error
    return named
