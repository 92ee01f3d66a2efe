"""From messages to events: over scripted backends, and over tiny models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import GenerationConfig

from chatlocal.engine import constraints
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import (
    ContextOverflow,
    UnsupportedInput,
    UnsupportedSchema,
)
from chatlocal.engine.events import Event, Finish, Text, collect
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Backend
from chatlocal.engine.written_prompt import written_prompt
from tests.engine.runtime.running import generated, tiny_engine, wait_for
from tests.scripted import ScriptedBackend, backend_of, scripted_engine, spell
from tests.tiny import tiny_model, tiny_tokenizer

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with tiny_engine() as engine:
        yield engine


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def prompt_of(length: int, engine: Engine) -> Any:
    """A written prompt of exactly so many ids."""
    prompt = written_prompt("<|im_start|>" * (length - 1) + "x", engine.tokenizer)
    assert len(prompt.ids(engine.tokenizer)) == length
    return prompt


# an answer


def test_a_scripted_backend_is_a_backend() -> None:
    assert isinstance(scripted_engine("hello").backend, Backend)


def test_an_answer_is_what_generate_decodes(engine: Engine) -> None:
    reply = engine.generate(HELLO, sampling=Sampling(max_tokens=20))
    ids = engine.render(HELLO).ids(engine.tokenizer)
    expected = generated(engine.model, ids, 20)
    expected = expected[: expected.index(2)] if 2 in expected else expected
    assert reply.message.content == engine.tokenizer.decode(expected, skip_special_tokens=True)
    assert (reply.finish.usage.prompt, reply.finish.usage.completion) == (len(ids), len(expected))


def test_streams_and_whole_answers_agree(engine: Engine) -> None:
    sampling = Sampling(temperature=1.0, seed=4, max_tokens=30)
    whole = engine.generate(HELLO, sampling=sampling)
    assert collect(engine.stream(HELLO, sampling=sampling)) == whole
    assert asyncio.run(engine.agenerate(HELLO, sampling=sampling)) == whole


def test_nothing_is_submitted_before_the_first_event_is_asked_for() -> None:
    engine = scripted_engine("hello")
    stream = engine.stream(HELLO)
    assert backend_of(engine).requests == []
    assert text_of(list(stream)) == "hello"


def test_an_untold_temperature_is_the_models(engine: Engine, recwarn: pytest.WarningsRecorder) -> None:
    engine.model.generation_config = config = GenerationConfig(do_sample=True, temperature=0.6, eos_token_id=2)
    before = config.to_dict()
    with Engine(engine.model, engine.tokenizer) as sampling_engine:

        def answers(temperature: float | None) -> set[str]:
            return {
                str(sampling_engine.generate(HELLO, sampling=Sampling(temperature, seed=seed, max_tokens=12)).message)
                for seed in range(4)
            }

        assert len(answers(None)) > 1
        assert len(answers(0) | answers(0.0)) == 1
        assert answers(None) == answers(0.6)
    assert config.to_dict() == before
    assert not recwarn.list


def test_a_tokenizer_that_returns_token_types_is_no_trouble() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    assert "token_type_ids" in tokenizer("hello")
    with Engine(tiny_model(), tokenizer) as engine:
        assert engine.generate(HELLO, sampling=Sampling(max_tokens=3)).finish.usage.completion <= 3


def test_describe_and_stats(engine: Engine) -> None:
    engine.generate(HELLO, sampling=Sampling(max_tokens=3))
    described = engine.describe()
    assert described["context_length"] == 512
    assert described["end_ids"] == [2]
    assert (described["device"], described["dtype"]) == ("cpu", "float32")
    assert "share one forward" in described["batching"]
    assert engine.stats()["forwards"] >= 1
    assert engine.stats()["running"] == 0


# the context


def test_a_prompt_longer_than_the_context_is_refused_before_any_work() -> None:
    with tiny_engine(max_position_embeddings=64) as engine:
        engine.tokenizer.model_max_length = int(1e30)
        for call in (engine.stream, engine.astream, engine.generate):
            with pytest.raises(ContextOverflow) as raised:
                call(prompt_of(70, engine))
            assert (raised.value.prompt_tokens, raised.value.context_length) == (70, 64)
            assert "70" in str(raised.value)
            assert "64" in str(raised.value)
        with pytest.raises(ContextOverflow, match="room for at least one"):
            engine.stream(prompt_of(64, engine))
        assert engine.stats()["forwards"] == 0


@pytest.mark.parametrize(("length", "room"), [(60, 4), (63, 1)])
def test_the_answer_fits_into_the_context(length: int, room: int) -> None:
    with tiny_engine(max_position_embeddings=64) as engine:
        engine.model.generation_config.eos_token_id = None
        engine.tokenizer.eos_token_id = None
        reply = engine.generate(prompt_of(length, engine), sampling=Sampling(max_tokens=100))
        assert reply.finish.reason == "length"
        assert (reply.finish.usage.prompt, reply.finish.usage.completion) == (length, room)


def test_an_unknown_context_is_no_limit() -> None:
    engine = scripted_engine("hello", context_length=int(1e30))
    assert engine.context_length is None
    engine.generate(prompt_of(2000, engine), sampling=Sampling(max_tokens=3000))
    assert backend_of(engine).requests[0].sampling.max_tokens == 3000


def test_an_empty_prompt_is_refused() -> None:
    engine = scripted_engine("hello")
    with pytest.raises(UnsupportedInput, match="empty"):
        engine.stream(written_prompt("", engine.tokenizer))
    with pytest.raises(UnsupportedInput, match="no messages"):
        engine.stream([])


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "5", True])
def test_a_timeout_that_is_no_time_is_refused(timeout: Any) -> None:
    with pytest.raises(UnsupportedInput, match="timeout"):
        scripted_engine("hello").stream(HELLO, timeout=timeout)


# ends


@pytest.mark.parametrize("configured", [300, [300, 301], None])
def test_every_end_id_ends_the_answer(configured: Any) -> None:
    """The tokenizer's, the configuration's and the family's: none is in the text, and nothing comes after."""
    ends = {2} | ({300} if configured else set())
    for end in ends:
        ids = (*spell("Hello"), 0, *spell("!"), end, *spell("assistant\nHello"))
        model = SimpleNamespace(config=None, generation_config=GenerationConfig(eos_token_id=configured))
        engine = Engine(model, tiny_tokenizer(), backend=ScriptedBackend(ids))
        reply = engine.generate(HELLO)
        assert reply.message.content == "Hello!"
        assert reply.finish.reason == "stop"
        assert reply.finish.usage.completion == len(spell("Hello")) + 1 + len(spell("!"))
        assert backend_of(engine).steps == reply.finish.usage.completion + 1


STOPPING = "one two\nUser: three" + " and so on" * 300


@pytest.mark.parametrize("how", ["stream", "astream", "generate"])
def test_a_stop_text_really_stops(how: str) -> None:
    engine = scripted_engine(STOPPING, context_length=100_000)
    sampling = Sampling(stop=("\nUser:",))
    if how == "generate":
        reply = engine.generate(HELLO, sampling=sampling)
    elif how == "stream":
        reply = collect(engine.stream(HELLO, sampling=sampling))
    else:
        reply = asyncio.run(engine.agenerate(HELLO, sampling=sampling))
    ids = spell(STOPPING)
    needed = next(count for count in range(len(ids)) if "\nUser:" in engine.tokenizer.decode(ids[:count]))
    assert reply.message.content == "one two"
    assert (reply.finish.reason, reply.finish.stop) == ("stop", "\nUser:")
    assert reply.finish.usage.completion == needed
    backend = backend_of(engine)
    wait_for(lambda: backend.running == 0, "the request is closed")
    assert backend.steps == needed
    assert backend.closed == 1


def test_the_slot_is_free_before_finish_is_read() -> None:
    engine = scripted_engine(STOPPING, context_length=100_000)
    stream = engine.stream(HELLO, sampling=Sampling(stop=("two",)))
    while not isinstance(next(stream), Finish):
        pass
    assert backend_of(engine).running == 0


async def test_the_slot_is_free_before_an_event_loop_reads_finish() -> None:
    engine = scripted_engine(STOPPING, context_length=100_000)
    stream = engine.astream(HELLO, sampling=Sampling(stop=("two",)))
    while not isinstance(await anext(stream), Finish):
        pass
    await asyncio.to_thread(wait_for, lambda: backend_of(engine).running == 0, "the request is closed")


# event loops


async def test_many_async_calls_at_once_do_not_block_the_loop(engine: Engine) -> None:
    prompts = [[{"role": "user", "content": f"number {number}"}] for number in range(12)]
    alone = [engine.generate(prompt, sampling=Sampling(max_tokens=10)) for prompt in prompts]
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticker = asyncio.create_task(tick())
    together = await asyncio.gather(*[engine.agenerate(prompt, sampling=Sampling(max_tokens=10)) for prompt in prompts])
    ticker.cancel()
    assert together == alone
    assert ticks > 10


def test_several_loops_in_several_threads(engine: Engine) -> None:
    prompts = [[{"role": "user", "content": f"number {number}"}] for number in range(4)]
    alone = [engine.generate(prompt, sampling=Sampling(max_tokens=10)) for prompt in prompts]
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        results[number] = asyncio.run(engine.agenerate(prompts[number], sampling=Sampling(max_tokens=10)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [results[number] for number in range(4)] == alone


async def test_a_constraint_is_compiled_beside_the_event_loop(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    submit = type(engine.backend).submit

    def watched(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return submit(*arguments)

    monkeypatch.setattr(type(engine.backend), "submit", watched)
    reply = await engine.agenerate(HELLO, spec=constraints.regex("[0-9]{3}"))
    assert str(reply.message.content).isdigit()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    with pytest.raises(UnsupportedSchema):
        await engine.agenerate(HELLO, spec=constraints.regex("(?=a)b"))


def test_a_part_of_the_sampling_is_pointed_out(engine: Engine) -> None:
    with pytest.raises(UnsupportedInput, match=r"sampling=Sampling\(max_tokens="):
        engine.generate(HELLO, max_tokens=5)


# structured answers


def test_structured_answers_twice_together_and_alone(engine: Engine) -> None:
    """A constraint's state belongs to one request: a second call and the rows of a batch start afresh."""
    spec = constraints.json_schema(
        {"type": "object", "properties": {"a": {"enum": ["x", "yy", "zzz"]}}, "required": ["a"]}
    )
    prompts = [[{"role": "user", "content": "tell me " * count}] for count in (1, 7, 3)]
    first = [engine.generate(prompt, spec=spec).message.content for prompt in prompts]
    assert all(text in ('{"a": "x"}', '{"a": "yy"}', '{"a": "zzz"}') for text in first)
    assert [engine.generate(prompt, spec=spec).message.content for prompt in prompts] == first
    streams = [engine.stream(prompt, spec=spec) for prompt in prompts]
    begun = [next(stream) for stream in streams]
    together = [text_of([first, *stream]) for first, stream in zip(begun, streams, strict=True)]
    assert together == first
    with tiny_engine() as fresh:
        assert [fresh.generate(prompt, spec=spec).message.content for prompt in prompts] == first


# errors


def test_an_error_of_the_model_reaches_the_caller_and_the_engine_goes_on(engine: Engine) -> None:
    expected = engine.generate(HELLO, sampling=Sampling(max_tokens=6))
    forward, calls = engine.model.forward, 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("the model is broken")
        return forward(*arguments, **options)

    engine.model.forward = failing
    stream = engine.stream(HELLO, sampling=Sampling(max_tokens=6, temperature=0))
    seen: list[Event] = []
    with pytest.raises(RuntimeError, match="the model is broken"):
        seen.extend(stream)
    assert str(expected.message.content).startswith(text_of(seen))
    engine.model.forward = forward
    assert engine.generate(HELLO, sampling=Sampling(max_tokens=6)) == expected


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_backends_error_comes_after_what_it_gave(how: str) -> None:
    engine = scripted_engine("one two three", fail_after=2)
    seen: list[Event] = []

    async def read() -> None:
        async for event in engine.astream(HELLO):
            seen.append(event)

    with pytest.raises(RuntimeError, match="the script fails here"):
        seen.extend(engine.stream(HELLO)) if how == "stream" else asyncio.run(read())
    assert text_of(seen) == engine.tokenizer.decode(spell("one two three")[:2])
    assert backend_of(engine).running == 0
