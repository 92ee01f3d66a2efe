"""Events and callbacks around the endpoints, by the core's own wrappers, and what those leave undone.

The core's wrappers (llama_index.core.llms.callbacks) build the event payload from `metadata`, which may load the
model, on the event loop; and they iterate a stream without closing it, so that a stream that was closed early would
run on for as long as a handler keeps the exception it was told of. They also have no types.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])
Wrapper = Callable[[], Callable[[Callable[..., Any]], Callable[..., Any]]]


def reported(wrapper: Wrapper) -> Callable[[Method], Method]:
    """For an endpoint that returns a response; `wrapper` is the core's llm_chat_callback or llm_completion_callback."""

    def decorate(method: Method) -> Method:
        return cast(Method, wrapper()(method))

    return decorate


def reported_stream(wrapper: Wrapper) -> Callable[[Method], Method]:
    """For an endpoint that returns a generator: closing what the caller gets closes it."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(llm: Any, *args: Any, **kwargs: Any) -> Any:
            opened: list[Any] = []

            def start(llm: Any, *args: Any, **kwargs: Any) -> Any:
                opened.append(method(llm, *args, **kwargs))
                return opened[0]

            return _closing(wrapper()(start)(llm, *args, **kwargs), opened[0])

        return cast(Method, call)

    return decorate


def reported_async(wrapper: Wrapper) -> Callable[[Method], Method]:
    """For an `async` endpoint that returns a response: the model loads in a thread, before the wrapper asks for it."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        async def call(llm: Any, *args: Any, **kwargs: Any) -> Any:
            async def start(llm: Any, *args: Any, **kwargs: Any) -> Any:
                return await method(llm, *args, **kwargs)

            await llm.aload()
            return await wrapper()(start)(llm, *args, **kwargs)

        return cast(Method, call)

    return decorate


def reported_async_stream(wrapper: Wrapper) -> Callable[[Method], Method]:
    """For an `async` endpoint that returns an async generator."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        async def call(llm: Any, *args: Any, **kwargs: Any) -> Any:
            opened: list[Any] = []

            async def start(llm: Any, *args: Any, **kwargs: Any) -> Any:
                opened.append(await method(llm, *args, **kwargs))
                return opened[0]

            await llm.aload()
            return _aclosing(await wrapper()(start)(llm, *args, **kwargs), opened[0])

        return cast(Method, call)

    return decorate


def _closing(wrapped: Generator[Any, None, None], inner: Generator[Any, None, None]) -> Generator[Any, None, None]:
    try:
        yield from wrapped
    finally:
        inner.close()


async def _aclosing(wrapped: AsyncGenerator[Any, None], inner: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for item in wrapped:
            yield item
    finally:
        await wrapped.aclose()
        await inner.aclose()
