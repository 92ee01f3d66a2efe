"""The one thread that owns the model. Each step: let new requests in, read pieces of their prompts, decode one id.

Prompts are read in pieces, between the decoding steps of the requests that are running already, so that a long prompt
does not stop their streams. What runs together fits into the cache: where answers outgrow it the youngest request goes
back to the queue, reads itself again later and goes on where it was.
"""

from __future__ import annotations

import errno
import itertools
import math
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from queue import Empty, SimpleQueue

import torch

from chatlocal.engine.errors import ChatLocalError, EngineBusy, EngineClosed, EngineDied
from chatlocal.engine.runtime import scoring
from chatlocal.engine.runtime.backend import Done, IdLogprob, Tokens
from chatlocal.engine.runtime.decoding import Decoder, End, Stats, no_numbers
from chatlocal.engine.runtime.pacing import Pace
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.scoring import Scorer
from chatlocal.engine.runtime.selective_head import SelectiveHead
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.shared_prompts import SharedPrompts
from chatlocal.engine.runtime.waiting_queue import WaitingQueue, rank

# Prompt ids for each forward, of one prompt and of all (padding counted), while nobody is waiting for a next id: many,
# so that prompts which arrive together start together.
_PREFILL_IDLE = (512, 1024)

# Where several prompts are read beside streams each of them gets at least so many ids in a step.
_LEAST_PIECE = 16

# Padding may make a forward up to so many times as large.
_PADDING = 2

# A request is let in where so many more ids of its answer, and of every other one, have room.
_GROWTH = 64

Work = list[tuple[Sequence, int]]


class Scheduler:
    """Runs sequences to their end. The thread starts with the first one.

    `max_waiting` is how many may wait for their turn, None for any number. `submit` and `close` may be called from any
    thread; everything else happens on the scheduler's own.
    """

    def __init__(
        self,
        runner: Runner,
        scorer: Scorer,
        decoder: Decoder,
        stats: Stats,
        max_batch: int,
        head: SelectiveHead | None = None,
        *,
        max_waiting: int | None = None,
    ) -> None:
        self._runner = runner
        self._scorer = scorer
        self._decoder = decoder
        self._head = head
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._most = max_batch
        """How many run at once: fewer for a while where the memory was not enough."""
        self._inbox: SimpleQueue[Sequence | None] = SimpleQueue()  # None: look whether to close
        self._arrivals = itertools.count(1)
        self._new = 0
        """How many were submitted and never let in."""
        self._waiting = WaitingQueue()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._short = False
        """Whether one waits because the cache has no room for it."""
        self._relieved = False
        """Whether all memory that can be spared was given back since the last forward that went well."""
        self._shared = SharedPrompts(runner)
        self._pace = Pace()
        self._seen = True
        """Whether the results of the last step were looked at, so that its work is done."""
        self._steps = 0
        # Held for the start and the end of the thread. Reentrant: a garbage collection can come to `close` from inside.
        self._ends = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._died: BaseException | None = None
        self.stats = stats

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. EngineBusy where too many wait, EngineClosed or EngineDied where no thread could run it."""
        with self._ends:
            if self.over:
                raise self._refusal("This engine was closed: load it again with Engine.load.")
            self._refuse_beyond_limit()
            self._new += 1
            sequence.arrival = next(self._arrivals)
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

    def wake(self) -> None:
        """Have it look again at a sequence that has become ready, or was closed before it was."""
        self._inbox.put(None)

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

    def _refuse_beyond_limit(self) -> None:
        """Those that a place is free for do not wait."""
        free = 0 if self._short else self._max_batch - self.running
        if self._max_waiting is not None and self._new >= max(free, 0) + self._max_waiting:
            raise EngineBusy(
                f"{self._new} requests wait already, and max_waiting lets {self._max_waiting} wait behind those that"
                " run: try again later, or raise max_waiting."
            )

    def _receive(self) -> None:
        """Take what has arrived; wait for it when there is nothing else to do."""
        reads = any(self._reads(one) or (one.ready and not one.begun) for one in self._prefilling)
        self._receive_all(block=not (self._decoding or reads or self._next() is not None))

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
                self._waiting.add(arrived)

    def _step(self) -> None:
        self._drop_cancelled()
        self._admit()
        self._begin()
        self._make_room()
        started, self._steps = time.perf_counter(), self._steps + 1
        decodes = len(self._decoding)
        seen_before, self._seen = self._seen, False
        reading = self._pieces()
        drafted = self._drafted()
        if self._runner.ragged:
            went_well = self._forward([*self._decode_work(), *reading])
        else:
            went_well = self._forward(reading)
            went_well = self._forward(self._decode_work()) and went_well
        # What was not looked at may still be under way: the time that it takes belongs to no step.
        if went_well and self._seen and seen_before:
            seconds = time.perf_counter() - started
            # Beside a prompt a drafted id is read at the cost of the prompt's.
            read = self._size(reading) + drafted if reading else 0
            self._pace.observe(decoding=decodes, read=read, seconds=seconds)

    def _decode_work(self) -> Work:
        return [(sequence, sequence.pending) for sequence in self._decoding]

    def _drop_cancelled(self) -> None:
        for sequence in [one for one in self._waiting if one.channel.closed]:
            self._waiting.remove(sequence)
            self._count_in(sequence)
            self.stats.cancelled += sequence.ready
        for sequence in [one for one in (*self._prefilling, *self._decoding) if one.channel.closed]:
            self._leave(sequence)
            self.stats.cancelled += sequence.ready  # one that was refused while it was read was none

    def _count_in(self, sequence: Sequence) -> None:
        """It is no new one any more."""
        if not sequence.admitted:
            sequence.admitted = True
            with self._ends:
                self._new -= 1

    def _admit(self) -> None:
        while (first := self._next()) is not None:
            self._waiting.take(first)
            self._count_in(first)
            self._shared.enter(first, self._prefilling)
            self._prefilling.append(first)
            first.turn = self._steps

    def _next(self) -> Sequence | None:
        """Who is to be let in now: the first of those that wait, where it has a place and room in the cache."""
        first = self._waiting.first()
        self._short = False
        if first is None or self._active >= self._most:
            return None
        running = [*self._prefilling, *self._decoding]
        lengths = [_grown(one) for one in (*running, first)]
        self._short = bool(running) and not self._runner.fits(lengths)
        return None if self._short else first

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

    def _make_room(self) -> None:
        """Send requests back to the queue, the least important and youngest first, until the others have room."""
        running = [*self._prefilling, *self._decoding]
        if self._runner.fits([len(one.ids) + len(one.draft) for one in running]):
            return
        for sequence in running:
            sequence.draft.clear()
        while len(running) > 1 and not self._runner.fits([len(one.ids) for one in running]):
            running.remove(last := max(running, key=rank))
            self._preempt(last)

    def _preempt(self, sequence: Sequence) -> None:
        """Back to the queue, with all that its answer depends on; only what the cache has of it may get lost."""
        self._leave(sequence)
        sequence.rest()
        self._waiting.add(sequence)
        self.stats.preempted += 1

    def _leave(self, sequence: Sequence, *, sound: bool = False) -> None:
        """Take a sequence out. What the cache has of it is good for others where its logits were: `sound`."""
        sound = sound or (sequence in self._decoding and sequence.broken is None)
        for group in (self._prefilling, self._decoding):
            if sequence in group:
                group.remove(sequence)
        self._shared.leave(sequence)
        self._runner.release(sequence, keep=sound)

    def _pieces(self) -> Work:
        """Which prompts are read in this step, taking turns, and how many ids of each. Drafts make room for them."""
        if not self._prefilling:
            return []
        turns = sorted(self._prefilling, key=lambda one: (one.turn, rank(one)))
        ready = [one for one in turns if self._reads(one) and not self._shared.waits(one, self._prefilling)]
        piece, together = _PREFILL_IDLE
        if self._decoding:
            together = self._pace.ids(reading=len(ready), decoding=len(self._decoding))
            if ready:
                together = max(1, together - self._curb_drafts(together // 2))
            piece = max(1, together // max(1, min(len(ready), together // _LEAST_PIECE)))
        work: Work = []
        for sequence in ready:
            if sequence.given and not self._runner.several:
                self._score(sequence)  # one a step, between the steps of those that are running
                break
            if not sequence.started and not self._start(sequence):
                return []  # others may have lost their places for it
            if sequence.given:
                sequence.foretell(min(piece, scoring.MOST_AT_ONCE))
            count = sequence.piece(piece) if self._runner.in_pieces else self._reads(sequence)
            if not count:
                continue  # all that it may read yet was there
            more = [*work, (sequence, count)]
            if work and self._size(more) > together:
                break
            if work and self._size(more) > _PADDING * sum(count for _, count in more):
                continue  # a later forward has others of its length
            sequence.turn = self._steps
            work = more
        return work

    def _drafted(self) -> int:
        return sum(len(sequence.draft) for sequence in self._decoding)

    def _curb_drafts(self, most: int) -> int:
        """Leave the streams so many drafted ids together, in equal shares; gives how many are left.

        While a prompt is read, each of them makes the others wait.
        """
        left = most
        drafting = sorted((one for one in self._decoding if one.draft), key=lambda one: len(one.draft))
        for place, sequence in enumerate(drafting):
            del sequence.draft[left // (len(drafting) - place) :]
            left -= len(sequence.draft)
        return most - left

    def _size(self, work: Work) -> int:
        """How many ids a forward reads for this, padding included."""
        counts = [count for _, count in work]
        padded = self._runner.shares and not self._runner.ragged
        return max(counts, default=0) * len(counts) if padded else sum(counts)

    def _start(self, sequence: Sequence) -> bool:
        """Give it its place in the cache, and what is there already of its ids; says whether there was memory."""
        try:
            self._runner.start(sequence)
        except Exception as problem:
            self._without_logits([(sequence, 0)], problem)
            return False
        sequence.started = True
        if sequence.reused is None:
            sequence.reused = sequence.cached
            self.stats.cached_prompt_tokens += sequence.cached
        return True

    def _score(self, sequence: Sequence) -> None:
        """Report the log-probabilities of a sequence whose new ids are known, and end it."""
        try:
            logprobs, passes = self._scorer.logprobs(sequence.ids, sequence.given)
        except Exception as problem:
            self._end(sequence, error=problem)
            return
        self.stats.forwards += passes
        self._report(sequence, sequence.given, logprobs)

    def _report(self, sequence: Sequence, ids: tuple[int, ...], logprobs: list[float]) -> None:
        """Send the log-probabilities of given ids; those that are not numbers, and the last ones, end the sequence."""
        if not all(map(math.isfinite, logprobs)):
            self._end(sequence, error=no_numbers())
            return
        sequence.channel.put(Tokens(ids, tuple(map(IdLogprob, ids, logprobs))))
        sequence.ids += ids
        if sequence.new_tokens == len(sequence.given):
            self.stats.tokens_in += len(sequence.ids)
            self._end(sequence, Done("length"), sound=sequence.started)

    def _forward(self, work: Work) -> bool:
        """Run the model and give each sequence whose ids are all read its next ids; says whether all went well."""
        went_well = True
        for part in [work] if self._runner.shares else [[item] for item in work if self._runs(item[0])]:
            if not part:
                continue
            deciding = [sequence for sequence, count in part if sequence.rows(count)]
            try:
                logits = self._logits(part, deciding)
            except Exception as problem:
                went_well = False
                self._without_logits(part, problem)
                continue
            self._relieved = False
            if not deciding:
                continue
            self._seen = True
            try:
                self._decide(logits, deciding)
            except Exception as problem:
                went_well = False
                self._fail(deciding, problem)
        return went_well

    def _without_logits(self, work: Work, problem: Exception) -> None:
        """A forward failed: if it was for want of memory, use less; if it was for two purposes, try each alone."""
        if _out_of_memory(problem) and self._spare_memory():
            return
        decoding = [item for item in work if item[0] in self._decoding]
        if decoding and len(decoding) < len(work):
            self._forward([item for item in work if item[0] not in self._decoding])
            self._forward(decoding)
        else:
            self._fail([sequence for sequence, _ in work], problem)

    def _runs(self, sequence: Sequence) -> bool:
        return sequence in self._prefilling or sequence in self._decoding

    def _logits(self, work: Work, deciding: list[Sequence]) -> torch.Tensor:
        """One forward; -inf at ids that no sequence may have next, where it pays to leave them out."""
        ids = None if self._head is None else self._head.worthwhile(deciding)
        with nullcontext() if self._head is None or ids is None else self._head.only(ids):
            logits = self._runner.forward(work)
        self.stats.forwards += 1
        if self._head is None or ids is None:
            return logits
        self.stats.selected += 1
        return self._head.spread(logits, ids)

    def _decide(self, logits: torch.Tensor, sequences: list[Sequence]) -> None:
        """What the logits mean to each sequence: its next ids, or how probable those are that it was given."""
        scored = [one for one in sequences if one.given]
        if scored:
            rows = dict(zip(sequences, torch.split(logits, [1 + len(one.draft) for one in sequences]), strict=True))
            for sequence in scored:
                ids = sequence.foretold()
                self._report(sequence, ids, scoring.score_rows(rows[sequence], ids))
            sequences = [one for one in sequences if not one.given]
            if not sequences:
                return
            logits = torch.cat([rows[sequence] for sequence in sequences])
        for sequence in sequences:
            if sequence in self._prefilling:
                self._prefilling.remove(sequence)
                self._decoding.append(sequence)
            if not sequence.counted:
                sequence.counted = True
                self.stats.tokens_in += len(sequence.request.prompt_ids)
        for sequence, end in self._decoder.decode(logits, sequences).items():
            self._end_with(sequence, end)

    def _fail(self, sequences: list[Sequence], problem: Exception) -> None:
        for sequence in sequences:
            if self._runs(sequence):
                self._end(sequence, error=problem)

    def _spare_memory(self) -> bool:
        """Use less of it, so that the next step may do what this one could not; False where there is nothing left."""
        running = sorted([*self._prefilling, *self._decoding], key=rank)
        if not self._relieved and self._runner.relieve():
            self._relieved = True
        elif len(running) > 1:
            self._most = len(running) // 2
            for sequence in running[self._most :]:
                self._preempt(sequence)
        else:
            return False
        for sequence in running[: self._most]:
            if sequence.started and not sequence.cached:  # it lost its place when the cache changed its size
                self._preempt(sequence)
        return True

    def _end_with(self, sequence: Sequence, end: End) -> None:
        if isinstance(end, Exception):
            self._end(sequence, error=end)
        else:
            self._end(sequence, end)

    def _end(
        self, sequence: Sequence, done: Done | None = None, error: Exception | None = None, *, sound: bool = False
    ) -> None:
        if error is not None:
            sequence.broken = error
        self._leave(sequence, sound=sound)
        if error is not None:
            self.stats.failed += 1
            sequence.channel.fail(_named(error))
        elif done is not None:
            self._most = min(self._most + 1, self._max_batch)
            self.stats.finished += 1
            sequence.channel.put(replace(done, cached=sequence.reused or 0))


def _grown(sequence: Sequence) -> int:
    """How many positions a sequence may have before long."""
    length = len(sequence.ids)
    limit = sequence.request.sampling.max_tokens
    if limit is None:
        return length + _GROWTH
    return max(length, min(length + _GROWTH, len(sequence.request.prompt_ids) + limit - 1))


def _out_of_memory(problem: Exception) -> bool:
    """Whether an error says that there is not enough memory: torch's for devices, and what a CPU's allocators say."""
    if isinstance(problem, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(problem, OSError):
        return problem.errno == errno.ENOMEM
    return isinstance(problem, RuntimeError) and (
        "not enough memory" in str(problem) or "can't allocate" in str(problem)
    )


def _named(error: Exception) -> Exception:
    """The error as one of ours: what a forward pass raises can be anything."""
    if isinstance(error, ChatLocalError):
        return error
    named = EngineDied(f"A step of the model failed ({type(error).__name__}: {error}): the request may be tried again.")
    named.__cause__ = error
    return named
