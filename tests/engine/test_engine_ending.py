"""How calls end before their answers do, and engines with what runs in them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
import torch

from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import (
    EngineClosed,
    GenerationTimeout,
)
from chatlocal.engine.events import Text, collect
from chatlocal.engine.messages import Sampling
from tests.engine.runtime.running import begun, scheduler_threads, tiny_engine, wait_for
from tests.tiny import tiny_model, tiny_tokenizer

HELLO = [{"role": "user", "content": "hello"}]
LONG = Sampling(max_tokens=100_000)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with tiny_engine() as engine:
        yield engine


@pytest.fixture
def endless() -> Iterator[Engine]:
    """Four slots, room for 100,000 ids, and no id that ends an answer: what runs runs until it is stopped."""
    model, tokenizer = tiny_model(max_position_embeddings=200_000), tiny_tokenizer()
    model.generation_config.eos_token_id = None
    tokenizer.eos_token_id = None
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    with Engine(model, tokenizer, max_batch=4) as engine:
        yield engine


def idle(engine: Engine) -> bool:
    stats = engine.stats()
    return stats["running"] == 0 and stats["waiting"] == 0


# cancelling


def test_closing_a_stream_frees_its_slot(endless: Engine) -> None:
    stream = endless.stream(HELLO, sampling=LONG)
    next(stream)
    next(stream)
    stream.close()
    wait_for(lambda: idle(endless), "the slot is free")
    assert endless.generate(HELLO, sampling=Sampling(max_tokens=3)).finish.usage.completion == 3


def test_abandoning_a_stream_frees_its_slot(endless: Engine) -> None:
    for event in endless.stream(HELLO, sampling=LONG):
        assert isinstance(event, Text)
        break
    gc.collect()
    wait_for(lambda: idle(endless), "the slot is free")


@pytest.mark.parametrize("timeout", [float("inf"), 1e18])
async def test_a_timeout_beyond_every_clock_is_no_limit(engine: Engine, timeout: float) -> None:
    sampling = Sampling(max_tokens=3)
    expected = engine.generate(HELLO, sampling=sampling)
    assert engine.generate(HELLO, sampling=sampling, timeout=timeout) == expected
    assert await engine.agenerate(HELLO, sampling=sampling, timeout=timeout) == expected


@pytest.mark.parametrize("others", [0, 4])
def test_a_timeout_ends_running_and_waiting_calls(endless: Engine, others: int) -> None:
    busy = [endless.stream(HELLO, sampling=LONG) for _ in range(others)]
    for stream in busy:
        next(stream)
    with pytest.raises(GenerationTimeout):
        endless.generate(HELLO, sampling=LONG, timeout=0.05)
    wait_for(lambda: begun(endless) == others, "only the others run")
    with pytest.raises(GenerationTimeout):
        asyncio.run(endless.agenerate(HELLO, sampling=LONG, timeout=0.05))
    for stream in busy:
        stream.close()
    wait_for(lambda: idle(endless), "the slots are free")


@pytest.mark.parametrize("others", [0, 4])
async def test_cancelling_a_task_ends_running_and_waiting_calls(endless: Engine, others: int) -> None:
    busy = [endless.stream(HELLO, sampling=LONG) for _ in range(others)]
    for stream in busy:
        next(stream)
    task = asyncio.create_task(endless.agenerate(HELLO, sampling=LONG))
    await asyncio.to_thread(wait_for, lambda: begun(endless) == others + 1, "it runs or waits")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for stream in busy:
        stream.close()
    await asyncio.to_thread(wait_for, lambda: idle(endless), "the slots are free")
    reply = await endless.agenerate(HELLO, sampling=Sampling(max_tokens=3))
    assert reply.finish.usage.completion == 3


async def test_leaving_an_async_stream_frees_its_slot(endless: Engine) -> None:
    stream = endless.astream(HELLO, sampling=LONG)
    await anext(stream)
    await stream.aclose()
    await asyncio.to_thread(wait_for, lambda: idle(endless), "the slot is free")
    async for _ in endless.astream(HELLO, sampling=LONG):
        break
    gc.collect()
    await asyncio.to_thread(wait_for, lambda: idle(endless), "the abandoned one's slot is free")


def test_an_async_stream_whose_loop_is_gone_frees_its_slot(endless: Engine) -> None:
    stream = endless.astream(HELLO, sampling=LONG)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    loop.close()
    del stream
    gc.collect()
    wait_for(lambda: idle(endless), "the slot is free")


# closing


def test_closing_ends_what_runs_and_refuses_what_comes(endless: Engine) -> None:
    before = len(scheduler_threads())
    stream = endless.stream(HELLO, sampling=LONG)
    unread = endless.stream(HELLO, sampling=LONG)
    next(stream)
    assert len(scheduler_threads()) == before + 1
    endless.close()
    endless.close()
    assert len(scheduler_threads()) == before
    with pytest.raises(EngineClosed):
        list(stream)
    with pytest.raises(EngineClosed):
        list(unread)
    for call in (endless.stream, endless.astream, endless.generate):
        with pytest.raises(EngineClosed, match="load it again"):
            call(HELLO)
    assert endless.closed


def test_a_consumer_may_close_the_engine_it_reads_from(endless: Engine) -> None:
    stream = endless.stream(HELLO, sampling=LONG)
    with pytest.raises(EngineClosed):
        collect(endless.close() or event for event in stream)
    assert idle(endless)


async def test_closing_ends_what_an_event_loop_waits_for(endless: Engine) -> None:
    task = asyncio.create_task(endless.agenerate(HELLO, sampling=LONG))
    await asyncio.to_thread(wait_for, lambda: endless.stats()["running"] == 1, "it runs")
    await asyncio.to_thread(endless.close)
    with pytest.raises(EngineClosed):
        await task


def test_the_context_manager_closes() -> None:
    with tiny_engine() as engine:
        engine.generate(HELLO, sampling=Sampling(max_tokens=2))
    assert engine.closed


def test_an_engine_that_nobody_holds_ends_its_thread() -> None:
    before = set(scheduler_threads())
    engine = tiny_engine()
    engine.generate(HELLO, sampling=Sampling(max_tokens=2))
    (thread,) = set(scheduler_threads()) - before
    del engine
    gc.collect()
    assert not thread.is_alive()


def test_an_engine_leaves_the_callers_model_usable() -> None:
    model = tiny_model()
    ids = torch.tensor([[5, 6, 7]])
    before = model(input_ids=ids).logits
    with Engine(model, tiny_tokenizer()) as engine:
        engine.generate(HELLO, sampling=Sampling(max_tokens=4))
        assert engine.model is model
    assert torch.equal(model(input_ids=ids).logits, before)
