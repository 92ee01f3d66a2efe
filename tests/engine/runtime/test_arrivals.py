"""Events of streams that can only block, and of our own, for threads and event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from chatlocal.engine.errors import GenerationTimeout
from chatlocal.engine.runtime.arrivals import arrivals, async_arrivals
from chatlocal.engine.runtime.backend import Done, TokenEvent, Tokens
from chatlocal.engine.runtime.stream import Channel, TokenStream
from tests.engine.runtime.running import wait_for

EVENTS: list[TokenEvent] = [Tokens((1,)), Tokens((2,)), Tokens((3,)), Done("stop")]


class Blocking(Iterator[TokenEvent]):
    """Gives EVENTS, each after `delay` seconds or when `allowed` is set; remembers that it was closed and by whom."""

    def __init__(self, delay: float = 0.0) -> None:
        self._events = iter(EVENTS)
        self._delay = delay
        self.allowed = threading.Event()
        self.allowed.set()
        self.given = 0
        self.closed = threading.Event()
        self.threads: set[threading.Thread] = set()

    def __next__(self) -> TokenEvent:
        self.threads.add(threading.current_thread())
        self.allowed.wait()
        time.sleep(self._delay)
        event = next(self._events)
        self.given += 1
        return event

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closed.set()


class Failing(Blocking):
    def __next__(self) -> TokenEvent:
        if self.given == 2:
            raise RuntimeError("broken")
        return super().__next__()


def test_a_blocking_stream_passes_through_and_is_closed() -> None:
    stream = Blocking()
    assert list(arrivals(stream, None)) == EVENTS
    assert stream.closed.is_set()


def test_a_stream_without_close_is_taken() -> None:
    assert list(arrivals(iter(EVENTS), None)) == EVENTS


def test_the_deadline_of_a_blocking_stream_is_checked_between_events() -> None:
    stream = Blocking(delay=0.02)
    with pytest.raises(GenerationTimeout):
        list(arrivals(stream, time.monotonic() + 0.01))
    assert stream.given == 1
    assert stream.closed.is_set()


def test_leaving_early_closes() -> None:
    stream = Blocking()
    incoming = arrivals(stream, None)
    next(incoming)
    incoming.close()
    assert stream.closed.is_set()
    assert stream.given == 1


async def read(stream: Iterator[TokenEvent], deadline: float | None = None) -> list[TokenEvent]:
    return [event async for event in async_arrivals(stream, deadline)]


async def test_an_event_loop_steps_a_blocking_stream_in_one_thread_of_its_own() -> None:
    stream = Blocking()
    assert await read(stream) == EVENTS
    assert await asyncio.to_thread(stream.closed.wait, 60)
    assert len(stream.threads) == 1
    assert threading.main_thread() not in stream.threads
    (stepper,) = stream.threads
    await asyncio.to_thread(stepper.join, 60)
    assert not stepper.is_alive()
    assert stepper.daemon


async def test_an_event_loop_is_not_blocked_by_a_step() -> None:
    stream = Blocking()
    stream.allowed.clear()
    reading = asyncio.create_task(read(stream))
    for _ in range(10):
        await asyncio.sleep(0.001)  # would never come back if the step blocked the loop
    stream.allowed.set()
    assert await reading == EVENTS


async def test_an_event_loop_hears_of_an_error_after_the_events_before_it() -> None:
    incoming = async_arrivals(Failing(), None)
    assert [await anext(incoming), await anext(incoming)] == EVENTS[:2]
    with pytest.raises(RuntimeError, match="broken"):
        await anext(incoming)


async def test_a_deadline_does_not_wait_for_the_step_under_way() -> None:
    stream = Blocking()
    stream.allowed.clear()
    with pytest.raises(GenerationTimeout):
        await read(stream, time.monotonic() + 0.02)
    assert not stream.closed.is_set()
    stream.allowed.set()
    assert await asyncio.to_thread(stream.closed.wait, 60)
    assert stream.given == 1


async def test_cancelling_closes_after_the_step_under_way() -> None:
    stream = Blocking()
    stream.allowed.clear()
    reading = asyncio.create_task(read(stream))
    await asyncio.to_thread(wait_for, lambda: bool(stream.threads), "a step is under way")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    stream.allowed.set()
    assert await asyncio.to_thread(stream.closed.wait, 60)


async def test_cancelling_closes_a_token_stream_at_once() -> None:
    channel = Channel()
    reading = asyncio.create_task(read(TokenStream(channel)))
    await asyncio.sleep(0.001)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert channel.closed


async def test_closing_the_generator_closes_a_token_stream() -> None:
    channel = Channel()
    incoming = async_arrivals(TokenStream(channel), None)
    channel.put(*EVENTS)
    assert await anext(incoming) == EVENTS[0]
    await incoming.aclose()
    assert channel.closed


def test_a_generator_whose_loop_is_gone_closes_a_token_stream() -> None:
    channel = Channel()
    channel.put(*EVENTS)
    incoming = async_arrivals(TokenStream(channel), None)
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(anext(incoming)) == EVENTS[0]
    loop.close()
    del incoming
    assert channel.closed
