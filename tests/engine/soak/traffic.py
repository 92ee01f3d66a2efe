"""Requests on one engine from many threads and one event loop at once, each ended in its own way."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import GenerationTimeout
from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Finish, Text
from chatlocal.engine.runtime.arrivals import arrivals, async_arrivals
from chatlocal.engine.runtime.backend import Done, Tokens
from tests.engine.soak.recipes import Recipe

THREADS = 32
TASKS = 16  # of the event loop at a time
_PATIENCE = 3000.0  # seconds; pytest has its own limit, this one tells what hangs


@dataclass(frozen=True, eq=False)
class Order:
    """A recipe and how its reader behaves: it leaves after `leaves` events (None: stays) in the way `how` says.

    `timeout` is in seconds. `how`: "close" the iterator, "drop" it, or "cancel" the task (in an event loop).
    """

    recipe: Recipe
    in_loop: bool
    leaves: int | None = None
    how: str = "close"
    timeout: float | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a request. `end` is "stop", "length", ..., "left" where its reader went away, or an error's name."""

    end: str
    ids: tuple[int, ...] = ()
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    usage: tuple[int, int] = (0, 0)
    stop: str | None = None
    reported: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()

    @property
    def words(self) -> tuple[Any, ...]:
        """All but numbers that are sums in an order of the batch's."""
        return self.end, self.ids, self.text, self.calls, self.usage, self.stop, self.reported


def orders(recipes: list[Recipe], count: int, seed: int = 0) -> list[Order]:
    """So many requests, each one of the recipes; about a fifth are left before their end, some have little time."""
    chosen = random.Random(seed)
    made: list[Order] = []
    for number in range(count):
        recipe = recipes[number % len(recipes)]
        in_loop = chosen.random() < 0.3
        leaves, how, timeout = None, "close", None
        if recipe.refused is None and chosen.random() < 0.2:
            leaves = chosen.choice([0, 0, 1, 2, chosen.randint(3, 30)])
            how = chosen.choice(["close", "drop", "cancel"] if in_loop else ["close", "drop"])
        elif recipe.refused is None and recipe.chat is not None and chosen.random() < 0.1:
            timeout = chosen.choice([0.001, 0.01, 0.1, 600.0])
        made.append(Order(recipe, in_loop, leaves, how, timeout))
    chosen.shuffle(made)
    return made


class _Taken:
    """An answer as it comes."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._starts: dict[int, str] = {}
        self._arguments: dict[int, str] = {}
        self._reported: list[tuple[int, float]] = []
        self._usage = (0, 0)
        self._stop: str | None = None
        self.end = "left"

    def take(self, event: Any) -> None:
        assert self.end == "left", f"{event} came after the end"
        match event:
            case Tokens():
                assert event.replaces <= len(self._ids)
                del self._ids[len(self._ids) - event.replaces :]
                self._ids += event.ids
                self._reported += [(report.id, report.logprob) for report in event.logprobs]
            case Text():
                self._texts.append(event.text)
            case CallStart():
                assert event.index not in self._starts
                self._starts[event.index], self._arguments[event.index] = event.name, ""
            case CallDelta():
                self._arguments[event.index] += event.arguments
            case CallInvalid():
                self._texts.append(event.raw)
            case Done():
                self.end = event.reason
            case Finish():
                self.end, self._stop = event.reason, event.stop
                self._usage = (event.usage.prompt, event.usage.completion)
                self._reported = [(one.id, one.logprob) for one in event.logprobs or ()]

    def answer(self) -> Answer:
        calls = tuple((name, self._arguments[index]) for index, name in sorted(self._starts.items()))
        reported = tuple(id for id, _ in self._reported)
        logprobs = tuple(logprob for _, logprob in self._reported)
        ids, text = tuple(self._ids), "".join(self._texts)
        return Answer(self.end, ids, text, calls, self._usage, self._stop, reported, logprobs)


def run_one(engine: Engine, order: Order) -> Answer:
    """One request, in the calling thread."""
    taken = _Taken()
    try:
        stream = _stream(engine, order)
        for number, event in enumerate(stream if order.leaves != 0 else ()):
            taken.take(event)
            if number + 1 == order.leaves:
                break
        if order.how == "close":
            stream.close()
        del stream
    except Exception as error:
        _note(taken, error, order)
    return taken.answer()


def run_at_once(engine: Engine, recipes: list[Recipe]) -> Callable[[], list[Answer]]:
    """Submit requests of ids in one go; call what is given to read them."""
    streams = [engine.backend.submit(recipe.ids) for recipe in recipes if recipe.ids is not None]

    def read() -> list[Answer]:
        answers: list[Answer] = []
        for stream in streams:
            taken = _Taken()
            for event in stream:
                taken.take(event)
            answers.append(taken.answer())
        return answers

    return read


def _stream(engine: Engine, order: Order) -> Any:
    if order.recipe.ids is not None:
        return arrivals(engine.backend.submit(order.recipe.ids), None)
    return engine.stream(**order.recipe.chat or {}, timeout=order.timeout)


async def _arun_one(engine: Engine, order: Order) -> Answer:
    taken = _Taken()
    cancels = order.how == "cancel" and order.leaves is not None

    async def read() -> None:
        stream = _astream(engine, order)
        if order.leaves != 0 or cancels:
            count = 0
            async for event in stream:
                taken.take(event)
                count += 1
                if count == order.leaves:
                    if not cancels:
                        break
                    reading.cancel()  # takes effect where it waits for the next event, if it has to
        if order.how == "close":
            await stream.aclose()

    reading = asyncio.ensure_future(read())
    try:
        if cancels and order.leaves == 0:
            await asyncio.sleep(0)  # it has begun
            reading.cancel()
        await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()
    except Exception as error:
        _note(taken, error, order)
    return taken.answer()


def _astream(engine: Engine, order: Order) -> Any:
    if order.recipe.ids is not None:
        return async_arrivals(engine.backend.submit(order.recipe.ids), None)
    return engine.astream(**order.recipe.chat or {}, timeout=order.timeout)


def _note(taken: _Taken, error: Exception, order: Order) -> None:
    """An error's name is the answer, where the request may have one."""
    if order.recipe.refused is None and not (order.timeout is not None and isinstance(error, GenerationTimeout)):
        raise error
    taken.end = type(error).__name__


def run_all(engine: Engine, orders: list[Order], after_each: Callable[[], None] = lambda: None) -> list[Answer]:
    """All requests, from THREADS threads and one event loop at once. What fails of the soak itself is raised."""
    answers: list[Answer | None] = [None] * len(orders)
    troubles: list[BaseException] = []
    start = threading.Barrier(THREADS + 1)

    def note(number: int, answer: Answer) -> None:
        answers[number] = answer
        after_each()

    def thread(own: Iterable[int]) -> None:
        start.wait()
        for number in own:
            note(number, run_one(engine, orders[number]))

    async def tasks(own: Iterable[int]) -> None:
        left = iter(own)

        async def lane() -> None:
            for number in left:
                note(number, await _arun_one(engine, orders[number]))

        await asyncio.gather(*(lane() for _ in range(TASKS)))

    def loop(own: Iterable[int]) -> None:
        start.wait()
        asyncio.run(tasks(own))

    def guarded(work: Callable[[Iterable[int]], None], own: Iterable[int]) -> None:
        try:
            work(own)
        except BaseException as trouble:
            troubles.append(trouble)

    of_loop = [number for number, order in enumerate(orders) if order.in_loop]
    of_threads = [number for number, order in enumerate(orders) if not order.in_loop]
    works = [(loop, of_loop), *((thread, of_threads[lane::THREADS]) for lane in range(THREADS))]
    started = [threading.Thread(target=guarded, args=work, daemon=True) for work in works]
    for one in started:
        one.start()
    limit = time.monotonic() + _PATIENCE
    for one in started:
        one.join(max(0.0, limit - time.monotonic()))
    if troubles:
        raise troubles[0]
    assert not any(one.is_alive() for one in started), f"{answers.count(None)} requests never ended: {engine.stats()}"
    return [answer for answer in answers if answer is not None]
