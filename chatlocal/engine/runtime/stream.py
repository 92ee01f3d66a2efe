"""The hand-over of one request's events from the scheduler thread to whoever waits, thread or event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from chatlocal.engine.errors import GenerationTimeout
from chatlocal.engine.runtime.backend import Done, TokenEvent


class TokenStream(Iterator[TokenEvent]):
    """Events of one request. The producer calls `put` and `fail`, the consumer iterates and may `close` at any time.

    Every method may be called from any thread. After `close` nothing more arrives and iteration ends.
    """

    def __init__(self, on_close: Callable[[], None] | None = None) -> None:
        self._events: deque[TokenEvent] = deque()
        self._error: BaseException | None = None
        self._over = False
        self._on_close = on_close
        self._changed = threading.Condition()
        self._waker: Callable[[], None] | None = None

    # producer

    @property
    def closed(self) -> bool:
        """Whether the consumer has gone away or the last event was handed over."""
        return self._over

    def put(self, *events: TokenEvent) -> None:
        with self._changed:
            if not self._over:
                self._events.extend(events)
                self._wake()

    def fail(self, error: BaseException) -> None:
        """End the stream with an error, after the events that were put before it."""
        with self._changed:
            if not self._over and self._error is None:
                self._error = error
                self._wake()

    # consumer

    def __next__(self) -> TokenEvent:
        return self.next(None)

    def next(self, deadline: float | None) -> TokenEvent:
        """The next event; blocks until `deadline` (time.monotonic) and raises GenerationTimeout then."""
        with self._changed:
            while (event := self._take()) is None:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise timed_out()
                self._changed.wait(remaining)
            return event

    async def anext(self, deadline: float | None) -> TokenEvent:
        """Like `next`, without blocking the event loop; StopAsyncIteration at the end."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                try:
                    event = self._take()
                except StopIteration:
                    raise StopAsyncIteration from None
                if event is not None:
                    return event
                arrived: asyncio.Future[None] = loop.create_future()
                self._waker = partial(_resolve_soon, loop, arrived)
            try:
                await asyncio.wait_for(arrived, None if deadline is None else deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise timed_out() from None

    def close(self) -> None:
        """Cancel: what has not been read is dropped, and the producer is told."""
        with self._changed:
            if self._over:
                return
            self._over = True
            self._events.clear()
            self._wake()
        if self._on_close is not None:
            self._on_close()

    def _take(self) -> TokenEvent | None:
        if self._events:
            event = self._events.popleft()
            self._over = self._over or isinstance(event, Done)
            return event
        if self._error is not None and not self._over:
            self._over = True
            raise self._error
        if self._over:
            raise StopIteration
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        waker, self._waker = self._waker, None
        if waker is not None:
            waker()


def arrivals(stream: Iterator[TokenEvent], deadline: float | None) -> Iterator[TokenEvent]:
    """The events of any backend's stream, with a deadline (checked between events where the stream cannot wait)."""
    try:
        if isinstance(stream, TokenStream):
            while True:
                try:
                    yield stream.next(deadline)
                except StopIteration:
                    return
        for event in stream:
            yield event
            if deadline is not None and time.monotonic() > deadline:
                raise timed_out()
    finally:
        _close(stream)


async def async_arrivals(stream: Iterator[TokenEvent], deadline: float | None) -> AsyncIterator[TokenEvent]:
    """The same for an event loop. A stream that can only block is stepped, event by event, in a thread of its own."""
    if isinstance(stream, TokenStream):
        try:
            while True:
                try:
                    yield await stream.anext(deadline)
                except StopAsyncIteration:
                    return
        finally:
            stream.close()
    loop = asyncio.get_running_loop()
    stepper = ThreadPoolExecutor(1, thread_name_prefix="chatlocal-stream")
    try:
        while True:
            remaining = None if deadline is None else deadline - time.monotonic()
            step = loop.run_in_executor(stepper, next, stream, None)
            try:
                event = await asyncio.wait_for(step, remaining)
            except asyncio.TimeoutError:
                raise timed_out() from None
            if event is None:
                return
            yield event
    finally:
        # The step under way cannot be interrupted; closing is queued behind it.
        stepper.submit(_close, stream)
        stepper.shutdown(wait=False)


def timed_out() -> GenerationTimeout:
    return GenerationTimeout(
        "The time limit of this call ran out and its slot was freed: raise `timeout` or lower `max_tokens`."
    )


def _resolve_soon(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    def resolve() -> None:
        if not arrived.done():
            arrived.set_result(None)

    # A loop that has been closed has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(resolve)


def _close(stream: Iterator[TokenEvent]) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()
