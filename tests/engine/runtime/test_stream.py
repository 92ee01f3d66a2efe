"""The hand-over between a producer thread and its consumer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from chatlocal.engine.errors import GenerationTimeout
from chatlocal.engine.runtime.backend import Done, TokenEvent, Tokens
from chatlocal.engine.runtime.stream import Channel, TokenStream

END = Done("stop")


def opened() -> tuple[Channel, TokenStream]:
    channel = Channel()
    return channel, TokenStream(channel)


def later(*calls: Callable[[], None]) -> threading.Thread:
    """Make the calls in another thread, a moment from now."""

    def run() -> None:
        for call in calls:
            time.sleep(0.01)
            call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_events_come_in_order_and_end_with_done() -> None:
    channel, stream = opened()
    events: list[TokenEvent] = [Tokens((1,)), Tokens((2, 3)), END]
    thread = later(*[lambda event=event: channel.put(event) for event in events])
    assert list(stream) == events
    assert channel.closed
    assert list(stream) == []
    thread.join()


def test_an_error_comes_after_the_events_before_it_and_once() -> None:
    channel, stream = opened()
    error = RuntimeError("broken")
    channel.put(Tokens((1,)))
    channel.fail(error)
    channel.fail(RuntimeError("a later one"))
    assert next(stream) == Tokens((1,))
    with pytest.raises(RuntimeError, match="broken"):
        next(stream)
    assert list(stream) == []


def test_an_error_of_many_callers_collects_no_frames() -> None:
    error = RuntimeError("broken")
    callers = [opened() for _ in range(4)]
    for channel, _ in callers:
        channel.fail(error)
    depths = []
    for _, stream in callers:
        with pytest.raises(RuntimeError) as raised:
            next(stream)
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


def test_an_error_after_the_end_is_none_of_the_callers() -> None:
    channel, stream = opened()
    channel.put(Tokens((1,)), END)
    channel.fail(RuntimeError("late"))
    assert list(stream) == [Tokens((1,)), END]


def test_closing_drops_what_is_unread_and_tells_the_producer() -> None:
    channel, stream = opened()
    channel.put(Tokens((1,)))
    stream.close()
    stream.close()
    channel.put(Tokens((2,)))
    assert channel.closed
    assert list(stream) == []


def test_closing_from_another_thread_wakes_the_reader() -> None:
    _, stream = opened()
    thread = later(stream.close)
    assert list(stream) == []
    thread.join()


def test_a_stream_that_nobody_holds_is_closed() -> None:
    channel, stream = opened()
    del stream
    assert channel.closed


def test_the_deadline_ends_waiting() -> None:
    channel, stream = opened()
    with pytest.raises(GenerationTimeout):
        stream.next(time.monotonic() + 0.01)
    channel.put(Tokens((1,)))
    assert stream.next(time.monotonic() + 60) == Tokens((1,))


def test_the_deadline_counts_for_a_producer_that_is_always_ahead() -> None:
    channel, stream = opened()
    channel.put(Tokens((1,)), Tokens((2,)))
    with pytest.raises(GenerationTimeout):
        stream.next(time.monotonic() - 1)


def test_an_answer_that_was_complete_in_time_is_read_after_the_deadline() -> None:
    channel, stream = opened()
    channel.put(Tokens((1,)), END)
    assert [stream.next(time.monotonic() - 1), stream.next(time.monotonic() - 1)] == [Tokens((1,)), END]


async def test_an_event_loop_waits_without_being_blocked() -> None:
    channel, stream = opened()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticker = asyncio.create_task(tick())
    thread = later(lambda: channel.put(Tokens((1,))), lambda: channel.put(END))
    assert [await stream.anext(None), await stream.anext(time.monotonic() + 60)] == [Tokens((1,)), END]
    with pytest.raises(StopAsyncIteration):
        await stream.anext(None)
    ticker.cancel()
    assert ticks > 0
    thread.join()


async def test_an_event_loop_keeps_the_deadline_and_hears_of_errors() -> None:
    channel, stream = opened()
    with pytest.raises(GenerationTimeout):
        await stream.anext(time.monotonic() + 0.01)
    with pytest.raises(GenerationTimeout):
        await stream.anext(time.monotonic() - 1)
    thread = later(lambda: channel.fail(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        await stream.anext(None)
    thread.join()


async def test_a_cancelled_wait_loses_no_event() -> None:
    channel, stream = opened()
    waiting = asyncio.create_task(stream.anext(None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    channel.put(Tokens((1,)))
    assert await stream.anext(None) == Tokens((1,))


def test_an_event_loop_that_has_been_closed_does_not_trouble_the_producer() -> None:
    channel, stream = opened()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(stream.anext(None))
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    channel.put(Tokens((1,)))
    assert next(stream) == Tokens((1,))


def test_many_threads_put_and_one_reads() -> None:
    channel, stream = opened()
    writers = [
        threading.Thread(target=lambda start=start: [channel.put(Tokens((start + step,))) for step in range(200)])
        for start in range(0, 1600, 200)
    ]
    for writer in writers:
        writer.start()
    read = sorted(next(stream).ids[0] for _ in range(1600))
    assert read == list(range(1600))
