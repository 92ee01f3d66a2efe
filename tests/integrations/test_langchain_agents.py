"""create_agent over scripted models: loops with tools, and answers in a form with and without them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, StructuredOutputValidationError, ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.tools import tool
from pydantic import BaseModel

from chatlocal import ChatLocal
from tests.integrations.chatml_tools import HERMES
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

QUESTION = {"messages": [("user", "How is the weather in Hangzhou?")]}


class Report(BaseModel):
    """A weather report."""

    city: str
    degrees: int


REPORT = Report(city="Hangzhou", degrees=25)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"25 degrees in {city}"


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ASK = call("weather", '{"city": "Hangzhou"}')


def chat(*answers: str, template: str = HERMES) -> ChatLocal:
    return ChatLocal(engine=scripted_engine(*answers, template=template, context_length=4096))


def prompt(model: ChatLocal) -> str:
    return str(tiny_tokenizer().decode(backend_of(model.engine).requests[-1].prompt_ids))


async def test_a_loop_calls_the_tool_and_answers() -> None:
    for run in ("invoke", "ainvoke"):
        model = chat(f"Let me look.\n{ASK}", "It is 25 degrees.")
        agent = create_agent(model, tools=[weather], system_prompt="You know the weather.")
        state = agent.invoke(QUESTION) if run == "invoke" else await agent.ainvoke(QUESTION)
        _, asked, result, answer = state["messages"]
        assert (asked.content, [made["args"] for made in asked.tool_calls]) == ("Let me look.", [{"city": "Hangzhou"}])
        assert isinstance(result, ToolMessage)
        assert (result.content, result.tool_call_id) == ("25 degrees in Hangzhou", asked.tool_calls[0]["id"])
        assert answer.content == "It is 25 degrees."
        assert "25 degrees in Hangzhou" in prompt(model)
        assert "You know the weather." in prompt(model)


def test_a_loop_makes_several_calls_at_once() -> None:
    rome = call("weather", '{"city": "Rome"}')
    model = chat(f"{ASK}\n{rome}", "Warm.")
    messages = create_agent(model, tools=[weather]).invoke(QUESTION)["messages"]
    assert [message.content for message in messages if isinstance(message, ToolMessage)] == [
        "25 degrees in Hangzhou",
        "25 degrees in Rome",
    ]


def test_a_loop_of_qwens_first_models() -> None:
    model = chat(
        'Thought: I should look.\nAction: weather\nAction Input: {"city": "Hangzhou"}',
        "Thought: I know it now.\nFinal Answer: It is 25 degrees.",
        template="qwen",
    )
    _, asked, result, answer = create_agent(model, tools=[weather]).invoke(QUESTION)["messages"]
    assert (asked.content, asked.additional_kwargs["reasoning_content"]) == ("", "I should look.")
    assert result.content == "25 degrees in Hangzhou"
    assert (answer.content, answer.additional_kwargs["reasoning_content"]) == ("It is 25 degrees.", "I know it now.")
    assert "Observation: 25 degrees in Hangzhou" in prompt(model)


def test_a_call_that_was_cut_is_not_made() -> None:
    model = chat('<tool_call>\n{"name": "weather", "arguments": {"city": "Hang')
    state = create_agent(model, tools=[weather]).invoke(QUESTION)
    assert len(state["messages"]) == 2
    assert [broken["name"] for broken in state["messages"][-1].invalid_tool_calls] == ["weather"]


async def test_a_loop_streams_its_chunks() -> None:
    agent = create_agent(chat(ASK, "It is 25 degrees."), tools=[weather])
    chunks: list[Any] = []
    async for chunk, _ in agent.astream(QUESTION, stream_mode="messages"):
        chunks.append(chunk)
    pieces = [piece for chunk in chunks if isinstance(chunk, AIMessageChunk) for piece in chunk.tool_call_chunks]
    assert "".join(piece["args"] or "" for piece in pieces) == '{"city": "Hangzhou"}'
    texts = [chunk.text for chunk in chunks if isinstance(chunk, AIMessageChunk) and chunk.text]
    assert "".join(texts) == "It is 25 degrees."
    assert len(texts) > 3


@pytest.mark.parametrize("strategy", [ToolStrategy(Report), ProviderStrategy(Report), Report])
def test_a_form_without_tools(strategy: Any) -> None:
    text = REPORT.model_dump_json()
    model = chat(call("Report", text) if isinstance(strategy, ToolStrategy) else text)
    state = create_agent(model, tools=[], response_format=strategy).invoke(QUESTION)
    assert state["structured_response"] == REPORT
    kind = "marked" if isinstance(strategy, ToolStrategy) else "json_schema"
    assert backend_of(model.engine).requests[-1].constraint_spec.kind == kind


@pytest.mark.parametrize("strategy", [ToolStrategy(Report), ProviderStrategy(Report), Report])
async def test_a_form_behind_a_tool(strategy: Any) -> None:
    text = REPORT.model_dump_json()
    model = chat(ASK, call("Report", text) if isinstance(strategy, ToolStrategy) else text)
    state = await create_agent(model, tools=[weather], response_format=strategy).ainvoke(QUESTION)
    assert state["structured_response"] == REPORT
    assert "25 degrees in Hangzhou" in [message.content for message in state["messages"]]
    assert len(backend_of(model.engine).requests) == 2


def test_a_form_that_fails_is_asked_for_again_or_raised() -> None:
    wrong = '{"city": "Hangzhou", "degrees": "warm"}'
    model = chat(call("Report", wrong), call("Report", REPORT.model_dump_json()))
    state = create_agent(model, tools=[], response_format=ToolStrategy(Report)).invoke(QUESTION)
    assert state["structured_response"] == REPORT
    assert "valid integer" in prompt(model)
    with pytest.raises(StructuredOutputValidationError):
        create_agent(chat(wrong), tools=[], response_format=ProviderStrategy(Report)).invoke(QUESTION)


@pytest.mark.parametrize(
    "kind", ["create_openai_functions_agent", "create_openai_tools_agent", "create_tool_calling_agent"]
)
def test_the_agents_of_langchain_classic(kind: str) -> None:
    from langchain_classic import agents

    model = chat(ASK, "It is 25 degrees.")
    place = MessagesPlaceholder("agent_scratchpad")
    asked = ChatPromptTemplate.from_messages([("system", "You know it."), ("human", "{input}"), place])
    tools = [tool(weather)]
    executor = agents.AgentExecutor(agent=getattr(agents, kind)(model, tools, asked), tools=tools)
    assert executor.invoke({"input": "How is it in Hangzhou?"})["output"] == "It is 25 degrees."
    assert prompt(model).index(ASK) < prompt(model).index("25 degrees in Hangzhou")


def test_no_tools_and_no_form_is_a_chat() -> None:
    [_, answer] = create_agent(chat("Hello."), tools=[]).invoke(QUESTION)["messages"]
    assert isinstance(answer, AIMessage)
    assert answer.content == "Hello."
