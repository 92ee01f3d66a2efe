"""The engine as a side: answers, times to the first id, gaps between ids."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from chatlocal.engine.engine import Engine
from chatlocal.engine.events import Text
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request, Tokens
from speed.prompts import long_ids
from speed.settings import Settings

# Seconds to wait for a stream at most; a run that takes longer is measured as far as it came.
_PATIENCE = 900


@dataclass(frozen=True)
class Took:
    """What several answers took together; `forwards` None from a side that does not count them."""

    seconds: float
    ids: list[list[int]]
    forwards: int | None = None

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return sum(map(len, self.ids)) / self.seconds


class Chatlocal:
    """An engine with the given options. Every prompt has a thread of its own, as callers have."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self.engine = Engine.load(settings.model, **settings.load, **options)

    def run(self, prompts: list[list[int]], new: int) -> Took:
        """So many new ids for each prompt, greedy, none of them an end."""

        def answer(prompt: list[int]) -> list[int]:
            return [id for event in self._submit(prompt, new) if isinstance(event, Tokens) for id in event.ids]

        before = self.engine.stats()["forwards"]
        start = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as threads:
            ids = list(threads.map(answer, prompts))
        return Took(time.perf_counter() - start, ids, self.engine.stats()["forwards"] - before)

    def first(self, prompt: list[int]) -> float:
        """Seconds to the first id."""
        start = time.perf_counter()
        for _ in self._submit(prompt, 1):
            return time.perf_counter() - start
        raise RuntimeError("an answer without ids")

    def long_first(self, length: int, start: int) -> float:
        return self.first(long_ids(self.engine.tokenizer, length, start))

    def step(self, streams: int, length: int, new: int, start: int = 0) -> float:
        """Median seconds between the ids of a stream while all are running, behind prompts of `length` ids."""
        prompts = [long_ids(self.engine.tokenizer, length, start + number) for number in range(streams)]
        with Streams([self._submit(prompt, new + 4) for prompt in prompts]) as running:
            running.wait(new + 4)
        return statistics.median(running.gaps(after=running.all_began()))

    def arrival(self, streams: int, prompts: list[list[int]], length: int, ids_before: int) -> dict[str, float]:
        """A prompt of `length` ids arrives among running streams: seconds of the streams' steps and of the newcomer."""
        newcomer = long_ids(self.engine.tokenizer, length, 5)
        room = (self.engine.context_length or 4096) - max(map(len, prompts))
        with Streams([self._submit(prompt, room) for prompt in prompts[:streams]]) as running:
            running.wait(ids_before)
            arrived = time.perf_counter()
            first = self.first(newcomer)
            answered = arrived + first
            running.wait_all(answered)
        steps = running.gaps(after=running.all_began(), until=arrived)
        return {
            "step": statistics.median(steps),
            "longest": max(running.gaps_across(arrived, answered)),
            "usual": max(steps),
            "first": first,
        }

    def chat(self, length: int, questions: list[str], new: int) -> dict[str, list[Any]]:
        """A conversation over `length` ids of history: for each turn the seconds to the first text, and the prompt."""
        notes = " ".join(["Read these notes.", *_words(self.engine.tokenizer, length)])
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": notes},
            {"role": "assistant", "content": "I have read the notes. What would you like to know?"},
        ]
        firsts: list[float] = []
        prompts: list[list[int]] = []
        for question in questions:
            messages.append({"role": "user", "content": question})
            prompts.append(list(self.engine.render(messages).ids(self.engine.tokenizer)))
            start, first, text = time.perf_counter(), 0.0, ""
            for event in self.engine.stream(messages, sampling=Sampling(temperature=0.0, max_tokens=new)):
                first = first or time.perf_counter() - start
                text += event.text if isinstance(event, Text) else ""
            firsts.append(first)
            messages.append({"role": "assistant", "content": text})
        return {"firsts": firsts, "prompts": prompts}

    def _submit(self, prompt: list[int], new: int) -> Iterator[Any]:
        return self.engine.backend.submit(Request(tuple(prompt), Sampling(temperature=0.0, max_tokens=new)))


def _words(tokenizer: Any, length: int) -> list[str]:
    return [str(tokenizer.decode(long_ids(tokenizer, length)))]


class Streams:
    """Running streams, each read by a thread that writes down when its ids came."""

    def __init__(self, streams: list[Iterator[Any]]) -> None:
        self._streams = streams
        self._times: list[list[float]] = [[] for _ in streams]
        self._changed = threading.Condition()
        self._stopped = False
        self._ended = 0
        self._threads = [threading.Thread(target=self._read, args=(n,), daemon=True) for n in range(len(streams))]

    def __enter__(self) -> Streams:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join()

    def wait(self, count: int) -> None:
        """Until each stream has brought ids so many times, or all have ended."""
        self._wait(lambda times: len(times) >= count)

    def wait_all(self, moment: float) -> None:
        """Until each stream has brought ids after a moment, or all have ended."""
        self._wait(lambda times: bool(times) and times[-1] > moment)

    def all_began(self) -> float:
        """When the last of them brought its first ids."""
        return max(times[0] for times in self._times)

    def gaps(self, after: float, until: float = math.inf) -> list[float]:
        """Seconds between the ids of a stream, where both came within the time that is given."""
        return [later - earlier for earlier, later in self._pairs() if earlier >= after and later <= until]

    def gaps_across(self, after: float, until: float) -> list[float]:
        """The same for those that a part of the time that is given lies in."""
        return [later - earlier for earlier, later in self._pairs() if later > after and earlier < until]

    def _pairs(self) -> Iterator[tuple[float, float]]:
        for times in self._times:
            yield from pairwise(times)

    def _wait(self, enough: Any) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended == len(self._streams) or all(map(enough, self._times)), timeout=_PATIENCE
            )

    def _read(self, number: int) -> None:
        stream = self._streams[number]
        try:
            for event in stream:
                if isinstance(event, Tokens):
                    with self._changed:
                        self._times[number].append(time.perf_counter())
                        self._changed.notify_all()
                if self._stopped:
                    stream.close()  # type: ignore[attr-defined]
                    break
        finally:
            with self._changed:
                self._ended += 1
                self._changed.notify_all()
