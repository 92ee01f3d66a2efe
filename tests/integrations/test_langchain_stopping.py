"""Stop strings end the work, not only the text; closing and cancelling free the backend within one step."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from chatlocal import ChatLocal
from tests.integrations.chatml_tools import HERMES
from tests.scripted import ScriptedBackend, backend_of, scripted_engine, spell
from tests.tiny import tiny_tokenizer

WORDS = "one two\nUser: three "
STOP = "\nUser:"


def endless(**settings: Any) -> tuple[ChatLocal, ScriptedBackend]:
    engine = scripted_engine(lambda _: itertools.cycle(spell(WORDS)), delay=settings.pop("delay", 0.0))
    return ChatLocal(engine=engine, max_tokens=400, **settings), backend_of(engine)


def steps_until(text: str) -> int:
    """How many ids of the script it takes until their text holds `text`."""
    ids = list(itertools.islice(itertools.cycle(spell(WORDS)), 400))
    return next(count for count in range(len(ids)) if text in tiny_tokenizer().decode(ids[:count]))


WAYS: dict[str, Callable[[ChatLocal], Any]] = {
    "call": lambda model: model.invoke("hi", stop=[STOP]).text,
    "bind": lambda model: model.bind(stop=[STOP]).invoke("hi").text,
    "stream": lambda model: "".join(chunk.text for chunk in model.stream("hi", stop=[STOP])),
    "batch": lambda model: model.batch(["hi"], stop=[STOP])[0].text,
    "field": lambda model: model.model_copy(update={"stop": [STOP]}).invoke("hi").text,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_string_stops_the_backend(way: str) -> None:
    model, backend = endless()
    assert WAYS[way](model) == "one two"
    assert backend.steps <= steps_until(STOP)
    assert (backend.running, backend.closed) == (0, 1)


async def test_a_stop_string_stops_the_backend_of_an_async_call() -> None:
    model, backend = endless()
    reply = await model.ainvoke("hi", stop=[STOP])
    assert (reply.content, reply.response_metadata["finish_reason"]) == ("one two", "stop")
    await settle(backend)
    assert backend.steps <= steps_until(STOP) + 1


def test_stops_of_a_call_replace_those_of_the_model() -> None:
    model, _ = endless(stop=["two"])
    assert model.invoke("hi").content == "one "
    assert model.invoke("hi", stop=[STOP]).content == "one two"
    assert model.invoke("hi", stop=[]).response_metadata["finish_reason"] == "length"


def test_closing_a_stream_frees_the_backend() -> None:
    model, backend = endless()
    stream = model.stream("hi")
    for _ in range(2):
        next(stream)
    steps = backend.steps
    stream.close()  # type: ignore[attr-defined]
    assert (backend.running, backend.closed) == (0, 1)
    assert backend.steps <= steps + 1
    assert model.invoke("hi", max_tokens=2).response_metadata["finish_reason"] == "length"


async def test_leaving_an_async_stream_frees_the_backend() -> None:
    model, backend = endless()
    stream = model.astream("hi")
    await anext(stream)
    steps = backend.steps
    await stream.aclose()  # type: ignore[attr-defined]
    await settle(backend)
    assert backend.steps <= steps + 1


@pytest.mark.parametrize("way", ["ainvoke", "astream", "abatch"])
async def test_cancelling_a_task_frees_the_backend(way: str) -> None:
    model, backend = endless(delay=0.02)

    async def run() -> None:
        if way == "astream":
            async for _ in model.astream("hi"):
                pass
        elif way == "ainvoke":
            await model.ainvoke("hi")
        else:
            await model.abatch(["hi"])

    task = asyncio.ensure_future(run())
    while backend.steps < 3:
        await asyncio.sleep(0.005)
    task.cancel()
    steps = backend.steps
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle(backend)
    assert backend.steps <= steps + 1


async def test_wait_for_frees_the_backend() -> None:
    model, backend = endless(delay=0.02)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(model.ainvoke("hi"), 0.1)
    steps = backend.steps
    await settle(backend)
    assert backend.steps <= steps + 1


async def test_the_event_loop_runs_on_between_tokens() -> None:
    engine = scripted_engine("one two three", delay=0.05)
    ticks = 0

    async def ticker() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    task = asyncio.ensure_future(ticker())
    seen = []
    async for chunk in ChatLocal(engine=engine).astream("hi"):
        if chunk.text:
            seen.append(ticks)
    task.cancel()
    assert len(seen) == len(spell("one two three"))
    assert all(after > before for before, after in itertools.pairwise([0, *seen]))


def in_a_call() -> tuple[Any, ScriptedBackend]:
    """A model that never ends the arguments of its call."""
    opening = spell('<tool_call>\n{"name": "say", "arguments": {"text": "')
    engine = scripted_engine(
        lambda _: itertools.chain(opening, itertools.cycle(spell("on and "))),
        template=HERMES,
        delay=0.001,
        context_length=4096,
    )
    tool = {"name": "say", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}
    return ChatLocal(engine=engine, max_tokens=2000).bind_tools([tool]), backend_of(engine)


def test_closing_a_stream_inside_of_a_call_frees_the_backend() -> None:
    model, backend = in_a_call()
    chunks = model.stream("hi")
    while not any(piece["args"] for piece in next(chunks).tool_call_chunks):
        pass
    chunks.close()
    assert (backend.running, backend.closed) == (0, 1)
    assert backend.steps < 100


async def test_cancelling_inside_of_a_call_frees_the_backend() -> None:
    model, backend = in_a_call()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(model.ainvoke("hi"), 0.2)
    await settle(backend)
    assert backend.steps < 2000


def test_a_stop_string_may_stand_in_a_call_and_ends_the_text() -> None:
    written = '<tool_call>\n{"name": "say", "arguments": {"text": "one END two"}}\n</tool_call>'
    model = ChatLocal(engine=scripted_engine(written, "one END two", template=HERMES, context_length=4096))
    bound = model.bind_tools([{"name": "say"}])
    assert bound.invoke("hi", stop=["END"]).tool_calls[0]["args"] == {"text": "one END two"}
    assert bound.invoke("hi", stop=["END"]).content == "one "


def test_many_threads_get_their_own_answers() -> None:
    model = ChatLocal(engine=scripted_engine(lambda request: request.prompt_ids))
    wrong: list[str] = []

    def ask(thread: int) -> None:
        for number in range(10):
            text = f"question {thread} {number} end"
            stream = number % 2 == 1
            reply = "".join(c.text for c in model.stream(text)) if stream else model.invoke(text).text
            if text not in reply:
                wrong.append(reply)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(backend_of(model.engine).requests) == 160


async def settle(backend: ScriptedBackend) -> None:
    """Wait until no request runs; the step under way when it was cancelled may end first."""
    for _ in range(200):
        if backend.running == 0:
            return
        await asyncio.sleep(0.01)
    pytest.fail("a request went on after it was cancelled")
