"""The hand-over of one request's events from the scheduler thread to whoever waits, thread or event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType

from chatlocal.engine.errors import EngineClosed, GenerationTimeout
from chatlocal.engine.runtime.backend import Done, TokenEvent


class Channel:
    """The producer's end. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._events: deque[TokenEvent] = deque()
        self._error: BaseException | None = None
        self._origin: TracebackType | None = None
        self._complete = False
        self._over = False
        self._changed = threading.Condition()
        self._waker: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:
        """Whether the consumer has gone away or has had the last event."""
        return self._over

    def put(self, *events: TokenEvent) -> None:
        with self._changed:
            if not self._over:
                self._events.extend(events)
                self._complete = self._complete or isinstance(events[-1], Done)
                self._wake()

    def fail(self, error: BaseException) -> None:
        """End the stream with an error, after the events that were put before it."""
        with self._changed:
            if not self._complete:
                self._error, self._origin = error, error.__traceback__
                self._complete = True
                self._wake()

    # The rest is for the stream of this channel.

    def next(self, deadline: float | None) -> TokenEvent:
        with self._changed:
            while (event := self._take(deadline)) is None:
                self._changed.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            return event

    def take_or_call(self, deadline: float | None, waker: Callable[[], None]) -> TokenEvent | None:
        """The next event, or None now and a call of `waker` when there is something to take."""
        with self._changed:
            event = self._take(deadline)
            self._waker = waker if event is None else None
            return event

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._events.clear()
            self._wake()

    def _take(self, deadline: float | None) -> TokenEvent | None:
        if self._over:
            raise StopIteration
        if deadline is not None and not self._complete and time.monotonic() >= deadline:
            raise timed_out()
        if self._events:
            event = self._events.popleft()
            self._over = isinstance(event, Done)
            return event
        if self._error is not None:
            self._over = True
            # One error may go to many callers: each adds its own frames to where it came from, not to the others'.
            raise self._error.with_traceback(self._origin)
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        waker, self._waker = self._waker, None
        if waker is not None:
            waker()


class TokenStream(Iterator[TokenEvent]):
    """The consumer's end: iterate, and `close` at any time, from any thread. An abandoned stream closes itself.

    An error that ended the request is raised after the events before it. `owner` is what must live as long as the
    stream is read. In a forked child reading raises EngineClosed: nobody there fills the stream.
    """

    def __init__(self, channel: Channel, owner: object = None) -> None:
        self._channel = channel
        self._owner = owner
        self._process = os.getpid()

    def __next__(self) -> TokenEvent:
        return self.next(None)

    def next(self, deadline: float | None) -> TokenEvent:
        """The next event; blocks until `deadline` (time.monotonic) and raises GenerationTimeout then."""
        self._check_process()
        return self._channel.next(deadline)

    async def anext(self, deadline: float | None) -> TokenEvent:
        """Like `next`, without blocking the event loop; StopAsyncIteration at the end."""
        self._check_process()
        loop = asyncio.get_running_loop()
        while True:
            arrived: asyncio.Future[None] = loop.create_future()
            try:
                event = self._channel.take_or_call(deadline, partial(_resolve_soon, loop, arrived))
            except StopIteration:
                raise StopAsyncIteration from None
            if event is not None:
                return event
            timer = loop.call_later(deadline - time.monotonic(), _resolve, arrived) if deadline is not None else None
            try:
                await arrived
            finally:
                if timer is not None:
                    timer.cancel()

    def close(self) -> None:
        """Cancel: what has not been read is dropped, and the request ends within one step."""
        # A fork copies the locks as they are, maybe held by a thread that it does not copy.
        if os.getpid() == self._process:
            self._channel.close()

    def __del__(self) -> None:
        self.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise forked()


def timed_out() -> GenerationTimeout:
    return GenerationTimeout(
        "The time limit of this call ran out and its slot was freed: raise `timeout` or lower `max_tokens`."
    )


def forked() -> EngineClosed:
    return EngineClosed(
        "This engine was loaded in another process, and a fork does not copy its thread: load the model in the child"
        " (or start the child with the 'spawn' method)."
    )


def _resolve_soon(loop: asyncio.AbstractEventLoop, arrived: asyncio.Future[None]) -> None:
    # A loop that has been closed has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve, arrived)


def _resolve(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
