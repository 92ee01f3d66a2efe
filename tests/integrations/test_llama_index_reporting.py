"""Events and callbacks: each call is told of once, and token counters count the engine's ids."""

from __future__ import annotations

import pytest
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler, TokenCountingHandler

from chatlocal.integrations.llama_index import LocalLLM
from tests.engine.runtime.running import tiny_engine
from tests.integrations.llama_index_calls import CHAT, COMPLETE, ask, hello, recorded_events
from tests.scripted import scripted_engine, spell

ANSWER = "Harry is a brown dog."
ENDPOINTS = CHAT + COMPLETE


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_instrumentation_events_fire_once(endpoint: str) -> None:
    with recorded_events() as events:
        responses = await ask(LocalLLM(engine=scripted_engine(ANSWER, name="tiny")), endpoint, hello(endpoint))
    kind = "Completion" if "complete" in endpoint else "Chat"
    progress = [f"LLM{kind}InProgressEvent"] * len(responses) if "stream" in endpoint else []
    names = [type(event).__name__ for event in events]
    assert names == [f"LLM{kind}StartEvent", *progress, f"LLM{kind}EndEvent"]
    assert events[0].model_dict["model_name"] == "tiny"
    assert events[-1].response.raw == responses[-1].raw
    assert {event.span_id.partition("-")[0] for event in events} == {f"LocalLLM.{endpoint}"}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_callbacks_fire_once_and_count_the_ids(endpoint: str) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    counter = TokenCountingHandler(tokenizer=lambda text: pytest.fail("counted by another tokenizer"))
    llm = LocalLLM(engine=scripted_engine(ANSWER), callback_manager=CallbackManager([debug, counter]))
    usage = (await ask(llm, endpoint, hello(endpoint)))[-1].raw["usage"]
    assert len(debug.get_event_pairs(CBEventType.LLM)) == 1
    assert len(debug.get_event_pairs(CBEventType.LLM)[0]) == 2
    assert counter.completion_llm_token_count == usage["completion_tokens"] == len(spell(ANSWER))
    assert counter.prompt_llm_token_count == usage["prompt_tokens"]


@pytest.mark.parametrize("endpoint", ["stream_chat", "stream_complete"])
def test_a_stream_that_is_closed_early_is_told_of_once(endpoint: str) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    llm = LocalLLM(engine=scripted_engine(ANSWER), callback_manager=CallbackManager([debug]))
    stream = getattr(llm, endpoint)(hello(endpoint))
    next(stream)
    stream.close()
    ((_, end),) = debug.get_event_pairs(CBEventType.LLM)
    assert isinstance(end.payload["exception"], GeneratorExit)


def test_endpoints_keep_their_signatures() -> None:
    assert LocalLLM.stream_chat.__doc__
    assert LocalLLM.stream_chat.__name__ == "stream_chat"


def test_a_manager_that_is_none_is_replaced() -> None:
    llm = LocalLLM(engine=scripted_engine(ANSWER), callback_manager=None)
    assert llm.complete("Hello").text == ANSWER


def test_usage_says_how_much_of_a_prompt_was_in_the_cache() -> None:
    with tiny_engine(max_position_embeddings=2048) as engine:
        llm = LocalLLM(engine=engine, max_tokens=6)
        first, again = (llm.complete("Who is Harry, and what does he eat?") for _ in range(2))
        assert first.text == again.text
        assert first.raw is not None
        assert again.raw is not None
        assert "cached_prompt_tokens" not in first.raw["usage"]
        assert again.raw["usage"]["cached_prompt_tokens"] == again.raw["usage"]["prompt_tokens"] - 1
