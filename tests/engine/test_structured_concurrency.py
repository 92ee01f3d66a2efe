"""Structured requests beside each other: each gets what it would get alone, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Spec
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import BudgetTooSmall, UnsupportedSchema
from chatlocal.engine.events import Reply, Text
from chatlocal.engine.messages import Sampling
from tests.engine.constraints.pydantic_models import TYPES
from tests.engine.runtime.running import begun, wait_for
from tests.tiny import tiny_model, tiny_tokenizer

KINDS = ("Component", "LinkedList", "Expression", "Labels", "Reading", "Dicts", "Owner", "Stripped")
REQUESTS = 32
UNSUPPORTED = constraints.json_schema({"type": "array", "contains": {"type": "integer"}})


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model(max_position_embeddings=2048), tiny_tokenizer(), max_batch=REQUESTS) as engine:
        yield engine


def request(number: int, kind: str | None = None) -> dict[str, Any]:
    """The arguments of one of many requests, in turn of all kinds; the longer, the later it ends."""
    name = kind or KINDS[number % len(KINDS)]
    return {
        "messages": [{"role": "user", "content": f"{number}: " + "a dog 小狗 " * (number % 5)}],
        "spec": constraints.json_schema(TYPES[name]),
        "sampling": Sampling(temperature=1.0, seed=number, max_tokens=70 + number % 16),
    }


def said(reply: Reply) -> tuple[Any, ...]:
    """What a reply says; how probable it was is computed in sums whose order depends on the batch."""
    return reply.message, reply.finish.reason, reply.finish.usage


def together(count: int, run: Callable[[int], Any]) -> list[Any]:
    start = threading.Barrier(count)

    def begin(number: int) -> Any:
        start.wait()
        return run(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def idle(engine: Engine) -> None:
    wait_for(lambda: begun(engine) == 0, "nothing runs")


def test_threads_with_eight_schemas_get_what_each_gets_alone(engine: Engine) -> None:
    def run(number: int) -> Any:
        return said(engine.generate(**request(number)))

    shared = together(REQUESTS, run)
    assert shared == [run(number) for number in range(REQUESTS)]
    texts = [str(message.content) for message, *_ in shared]
    for number, text in enumerate(texts):
        constraints.validation.check(TYPES[KINDS[number % len(KINDS)]], text)
    assert len(set(texts)) > REQUESTS // 2


async def test_tasks_with_eight_schemas_get_what_each_gets_alone(engine: Engine) -> None:
    shared = await asyncio.gather(*(engine.agenerate(**request(number)) for number in range(REQUESTS)))
    assert list(map(said, shared)) == [said(engine.generate(**request(number))) for number in range(REQUESTS)]


@pytest.mark.parametrize("kind", ["Component", "Stripped"])
def test_the_rows_of_a_batch_share_one_constraint_and_no_state(kind: str, engine: Engine) -> None:
    def run(number: int) -> Any:
        return said(engine.generate(**request(number, kind)))

    shared = together(12, run)
    assert shared == [run(number) for number in range(12)]
    assert shared == together(12, run)


def test_a_stream_that_is_left_midway_leaves_nothing_to_the_next(engine: Engine) -> None:
    alone = {number: said(engine.generate(**request(number, "Component"))) for number in range(6)}
    for number in range(6):
        stream = engine.stream(**request(number, "Component"))
        for _ in range(number):
            next(stream)
        stream.close()
        assert said(engine.generate(**request(number, "Component"))) == alone[number]
    idle(engine)


async def test_cancelled_tasks_leave_nothing_to_their_neighbours(engine: Engine) -> None:
    alone = [said(engine.generate(**request(number))) for number in range(16)]
    tasks = [asyncio.create_task(engine.agenerate(**request(number))) for number in range(16)]
    await asyncio.to_thread(wait_for, lambda: engine.stats()["tokens_out"] > 0 and begun(engine) > 8, "some run")
    for task in tasks[::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    # One that was over before it could be cancelled is as good.
    assert all(isinstance(reply, asyncio.CancelledError) or said(reply) in alone for reply in ended[::2])
    assert list(map(said, ended[1::2])) == alone[1::2]
    assert said(await engine.agenerate(**request(0))) == alone[0]
    await asyncio.to_thread(idle, engine)


@pytest.mark.parametrize(
    ("spec", "tokens", "error"),
    [
        (UNSUPPORTED, 100, UnsupportedSchema),
        (constraints.json_schema(TYPES["Component"]), 3, BudgetTooSmall),
        (constraints.regex("(?=a)b"), 100, UnsupportedSchema),
    ],
)
def test_requests_that_are_refused_do_not_touch_the_others(
    spec: Spec, tokens: int, error: type[Exception], engine: Engine
) -> None:
    def run(number: int) -> Any:
        if number % 2:
            return said(engine.generate(**request(number)))
        refused = request(number) | {"spec": spec, "sampling": Sampling(max_tokens=tokens)}
        with pytest.raises(error):
            engine.generate(**refused)
        return None

    shared = together(12, run)
    assert shared == [said(engine.generate(**request(number))) if number % 2 else None for number in range(12)]
    assert engine.stats()["failed"] == 0


async def test_refused_tasks_do_not_touch_the_others(engine: Engine) -> None:
    refused = [
        request(0) | {"spec": UNSUPPORTED},
        request(1) | {"sampling": Sampling(max_tokens=2)},
    ]
    calls = [engine.agenerate(**arguments) for number in range(6) for arguments in (*refused, request(number))]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(reply) for reply in ended[::3]] == [UnsupportedSchema] * 6
    assert [type(reply) for reply in ended[1::3]] == [BudgetTooSmall] * 6
    assert list(map(said, ended[2::3])) == [said(engine.generate(**request(number))) for number in range(6)]


def test_one_constraint_is_used_again_and_again(engine: Engine) -> None:
    first = said(engine.generate(**request(3, "Expression")))
    assert all(said(engine.generate(**request(3, "Expression"))) == first for _ in range(10))


def test_constrained_and_free_requests_beside_each_other(engine: Engine) -> None:
    def run(number: int) -> Any:
        arguments = request(number)
        return said(engine.generate(**(arguments if number % 3 else arguments | {"spec": None})))

    shared = together(12, run)
    assert shared == [run(number) for number in range(12)]


def test_texts_come_as_they_are_written(engine: Engine) -> None:
    whole = engine.generate(**request(5, "Dicts"))
    streams = [engine.stream(**request(5, "Dicts")) for _ in range(4)]
    pieces: list[list[str]] = [[] for _ in streams]
    for events in zip(*streams, strict=True):
        for place, event in enumerate(events):
            if isinstance(event, Text):
                pieces[place].append(event.text)
    assert {"".join(texts) for texts in pieces} == {whole.message.content}
    assert all(len(texts) > 1 for texts in pieces)
