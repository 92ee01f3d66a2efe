"""Cancelling, failing and waiting: streams and async calls of LocalLLM."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler

from chatlocal.engine.errors import ContextOverflow, GenerationTimeout
from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import HELLO, PATIENCE, until
from tests.scripted import ScriptedBackend, backend_of, scripted_engine

LONG = "the dog is brown " * 500


def over(backend: ScriptedBackend) -> bool:
    return backend.running == 0 and backend.closed == 1


def recorded(answer: str = LONG, **options: Any) -> tuple[LocalLLM, ScriptedBackend]:
    """A model object whose handler keeps every event's payload, exceptions with their frames included."""
    engine = scripted_engine(answer, **options)
    manager = CallbackManager([LlamaDebugHandler(print_trace_on_end=False)])
    return LocalLLM(engine=engine, callback_manager=manager, max_tokens=400), backend_of(engine)


@pytest.mark.parametrize(("endpoint", "prompt"), [("stream_chat", HELLO), ("stream_complete", "Hello")])
def test_closing_a_stream_ends_the_request(endpoint: str, prompt: Any) -> None:
    llm, backend = recorded()
    stream = getattr(llm, endpoint)(prompt)
    next(stream)
    assert backend.running == 1
    # Nothing may depend on the garbage collector: the handler keeps the frames of the wrappers alive.
    gc.disable()
    try:
        stream.close()
        assert over(backend)
    finally:
        gc.enable()
    assert backend.steps < 20


@pytest.mark.parametrize(("endpoint", "prompt"), [("stream_chat", HELLO), ("stream_complete", "Hello")])
def test_leaving_a_loop_ends_the_request(endpoint: str, prompt: Any) -> None:
    llm, backend = recorded()
    for _ in getattr(llm, endpoint)(prompt):
        break
    gc.collect()
    assert over(backend)


@pytest.mark.parametrize(("endpoint", "prompt"), [("astream_chat", HELLO), ("astream_complete", "Hello")])
async def test_closing_an_async_stream_ends_the_request(endpoint: str, prompt: Any) -> None:
    llm, backend = recorded(delay=0.001)
    stream = await getattr(llm, endpoint)(prompt)
    await anext(stream)
    await stream.aclose()
    await until(lambda: over(backend))
    assert backend.steps < 20


@pytest.mark.parametrize(("endpoint", "prompt"), [("achat", HELLO), ("acomplete", "Hello")])
async def test_cancelling_a_task_ends_the_request(endpoint: str, prompt: Any) -> None:
    llm, backend = recorded(delay=0.001)
    task = asyncio.create_task(getattr(llm, endpoint)(prompt))
    await until(lambda: backend.steps > 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: over(backend))
    steps = backend.steps
    await asyncio.sleep(0.02)
    assert backend.steps == steps < 400


async def test_cancelling_a_task_that_reads_a_stream_ends_the_request() -> None:
    llm, backend = recorded(delay=0.001)

    async def read() -> None:
        async for _ in await llm.astream_chat(HELLO):
            pass

    task = asyncio.create_task(read())
    await until(lambda: backend.steps > 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: over(backend))


@pytest.mark.parametrize(("endpoint", "prompt"), [("achat", HELLO), ("astream_complete", "Hello")])
async def test_the_event_loop_runs_on(endpoint: str, prompt: Any) -> None:
    """One id of the script waits until the loop has turned 20 times: a blocked loop would never get there."""
    turns = 0
    gate = threading.Event()
    passed: list[bool] = []
    engine = scripted_engine(lambda request: gated())

    def gated() -> Any:
        yield 40
        passed.append(gate.wait(PATIENCE))
        yield 41

    llm = LocalLLM(engine=engine)

    async def call() -> None:
        answer = await getattr(llm, endpoint)(prompt)
        if endpoint.startswith("astream"):
            async for _ in answer:
                pass

    task = asyncio.create_task(call())
    while not task.done():
        turns += 1
        if turns == 20:
            gate.set()
        await asyncio.sleep(0.001)
    await task
    assert passed == [True]
    assert backend_of(engine).steps == 2


async def test_async_calls_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def meet(request: Any) -> Any:
        both.wait()  # passes only when two requests are under way at once
        yield 40

    llm = LocalLLM(engine=scripted_engine(meet))
    await asyncio.gather(llm.achat(HELLO), llm.acomplete("Hello"))


async def test_loading_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = threading.Event()
    passed: list[bool] = []
    engine = scripted_engine("Hi")

    def slow_load(model: Any, **options: Any) -> Any:
        passed.append(loaded.wait(PATIENCE))
        return engine

    monkeypatch.setattr("chatlocal.integrations.llama_index.shared_engine", slow_load)
    task = asyncio.create_task(LocalLLM("some/model").achat(HELLO))
    await asyncio.sleep(0.01)  # comes back although the load waits
    loaded.set()
    assert (await task).message.content == "Hi"
    assert passed[0]


@pytest.mark.parametrize("endpoint", ["stream_chat", "astream_chat"])
async def test_an_error_comes_after_what_was_written_before_it(endpoint: str) -> None:
    llm, backend = recorded(fail_after=4)
    seen: list[str] = []

    async def read() -> None:
        if endpoint == "stream_chat":
            seen.extend(response.delta or "" for response in llm.stream_chat(HELLO))
        async for response in await llm.astream_chat(HELLO):
            seen.append(response.delta or "")

    with pytest.raises(RuntimeError, match="the script fails here"):
        await read()
    assert LONG.startswith("".join(seen))
    assert "".join(seen)
    assert backend.running == 0


async def test_the_time_limit_of_object_and_call() -> None:
    llm = LocalLLM(engine=scripted_engine(LONG, delay=0.002), timeout=0.02)
    with pytest.raises(GenerationTimeout):
        llm.complete("Hello")
    with pytest.raises(GenerationTimeout):
        await llm.acomplete("Hello")
    with pytest.raises(GenerationTimeout):
        LocalLLM(engine=scripted_engine(LONG, delay=0.002)).chat(HELLO, timeout=0.01)


@pytest.mark.parametrize("endpoint", ["complete", "stream_complete"])
def test_a_prompt_beyond_the_context_is_refused_in_the_call(endpoint: str) -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    with pytest.raises(ContextOverflow, match="512"):
        getattr(llm, endpoint)(LONG)
    assert backend_of(llm.engine).requests == []


async def test_the_same_in_an_async_call() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    with pytest.raises(ContextOverflow):
        await llm.astream_complete(LONG)
