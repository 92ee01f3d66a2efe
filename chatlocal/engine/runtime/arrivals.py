"""The events of any backend's stream, for a thread and for an event loop, with a deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from chatlocal.engine.runtime.backend import TokenEvent
from chatlocal.engine.runtime.stream import TokenStream, timed_out

T = TypeVar("T")


def arrivals(stream: Iterator[TokenEvent], deadline: float | None) -> Generator[TokenEvent, None, None]:
    """The events as they come; closing this closes the stream.

    GenerationTimeout at the deadline (time.monotonic), between two events where the stream itself cannot wait.
    """
    try:
        if isinstance(stream, TokenStream):
            while True:
                try:
                    event = stream.next(deadline)
                except StopIteration:
                    return
                yield event
        for event in stream:
            yield event
            if deadline is not None and time.monotonic() >= deadline:
                raise timed_out()
    finally:
        _close(stream)


async def async_arrivals(stream: Iterator[TokenEvent], deadline: float | None) -> AsyncGenerator[TokenEvent, None]:
    """The same for an event loop. A stream that can only block is stepped, event by event, in a thread of its own."""
    if isinstance(stream, TokenStream):
        try:
            while True:
                try:
                    event = await stream.anext(deadline)
                except StopAsyncIteration:
                    return
                yield event
        finally:
            stream.close()
    loop = asyncio.get_running_loop()
    stepper = _Stepper()
    step: asyncio.Future[TokenEvent | None] | None = None
    try:
        while True:
            step = loop.run_in_executor(stepper, next, stream, None)
            done, _ = await asyncio.wait({step}, timeout=None if deadline is None else deadline - time.monotonic())
            if not done:
                raise timed_out()
            stepped = step.result()
            if stepped is None:
                return
            yield stepped
    finally:
        # The step under way cannot be interrupted: nobody waits for it any more, and closing is queued behind it.
        if step is not None:
            step.cancel()
        stepper.submit(_close, stream)
        stepper.shutdown(wait=False)


class _Stepper(Executor):
    """One daemon thread. The standard library's executors would keep an exit waiting for a step that never ends."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="chatlocal-stream", daemon=True).start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # it belongs to whoever waits for the future
                    future.set_exception(error)

        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _close(stream: Iterator[TokenEvent]) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()
