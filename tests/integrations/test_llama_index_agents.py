"""The core's agents that call functions, over scripted models: tools are run, results go back, events stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.agent.workflow import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    FunctionAgent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from pydantic import BaseModel

from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import agents_look_at_all, final_answer, prompts, tool_call, tool_llm, until
from tests.scripted import backend_of

pytestmark = agents_look_at_all


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def weather(city: str) -> str:
    """Tell the weather of a city."""
    if city == "Nowhere":
        raise ValueError("there is no such city")
    return f"It rains in {city}."


TOOLS: list[Any] = [add, weather]
SCRIPT = (tool_call("add", {"a": 3, "b": 41}), final_answer("It is 44."))


def answer_of(output: AgentOutput) -> str:
    return (output.response.content or "").strip()


async def run(agent: Any, question: str = "What is 3 + 41?", **kwargs: Any) -> tuple[AgentOutput, list[Any]]:
    """What an agent ends with, and the events on the way."""
    handler = agent.run(question, **kwargs)
    events = [event async for event in handler.stream_events()]
    return await handler, events


def of(kind: type, events: list[Any]) -> list[Any]:
    return [event for event in events if type(event) is kind]


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_function_agent_calls_a_tool_and_answers(streaming: bool) -> None:
    llm = tool_llm(*SCRIPT)
    output, events = await run(FunctionAgent(tools=TOOLS, llm=llm, streaming=streaming, system_prompt="Be brief."))
    assert answer_of(output) == "It is 44."
    assert output.raw["finish_reason"] == "stop"
    (call,) = of(ToolCall, events)
    assert (call.tool_name, call.tool_kwargs) == ("add", {"a": 3, "b": 41})
    (result,) = of(ToolCallResult, events)
    assert (result.tool_id, result.tool_output.raw_output) == (call.tool_id, 44)
    assert [each.tool_name for each in output.tool_calls] == ["add"]
    first, second = prompts(llm)
    assert "Add two numbers." in first
    assert "Be brief." in first
    assert second.startswith(first.rstrip())  # the answer so far and the result are put behind
    assert second.removeprefix(first.rstrip()).count("44") == 1
    assert bool(of(AgentStream, events)) == streaming


async def test_the_stream_of_an_agent_has_answer_calls_and_thoughts() -> None:
    _, events = await run(FunctionAgent(tools=TOOLS, llm=tool_llm(*SCRIPT)))
    stream = of(AgentStream, events)
    assert "".join(event.delta for event in stream).strip() == "It is 44."
    thoughts = "".join(event.thinking_delta or "" for event in stream)
    assert "I need a tool." in thoughts
    assert "I know the answer." in thoughts
    assert [(call.tool_name, call.tool_kwargs) for event in stream for call in event.tool_calls][-1] == (
        "add",
        {"a": 3, "b": 41},
    )
    for event in stream:
        assert json.loads(json.dumps(event.raw)) == event.raw


async def test_a_tool_that_fails_is_told_of() -> None:
    llm = tool_llm(tool_call("weather", {"city": "Nowhere"}), final_answer("I do not know."))
    output, events = await run(FunctionAgent(tools=TOOLS, llm=llm))
    assert of(ToolCallResult, events)[0].tool_output.is_error
    assert "there is no such city" in prompts(llm)[1]
    assert answer_of(output) == "I do not know."


async def test_several_calls_in_one_turn() -> None:
    calls = "\n".join(
        f"<tool_call>\n{json.dumps({'name': 'add', 'arguments': {'a': a, 'b': 1}})}\n</tool_call>" for a in (1, 5)
    )
    llm = tool_llm(calls, "2 and 6.", words=True)
    agent = FunctionAgent(tools=TOOLS, llm=llm, initial_tool_choice="add")
    output, events = await run(agent)
    assert sorted(result.tool_output.raw_output for result in of(ToolCallResult, events)) == [2, 6]
    assert answer_of(output) == "2 and 6."
    assert len({call.tool_id for call in of(ToolCall, events)}) == 2


async def test_the_first_tool_may_be_chosen() -> None:
    """A model that is told of tools in words would not call one by itself."""
    call = f"<tool_call>\n{json.dumps({'name': 'weather', 'arguments': {'city': 'Oslo'}})}\n</tool_call>"
    llm = tool_llm(call, "It rains.", words=True)
    output, events = await run(FunctionAgent(tools=TOOLS, llm=llm, initial_tool_choice="weather"), "How is Oslo?")
    assert of(ToolCallResult, events)[0].tool_output.raw_output == "It rains in Oslo."
    assert answer_of(output) == "It rains."
    first, second = backend_of(llm.engine).requests
    assert first.constraint_spec is not None
    assert "add" not in json.loads(first.constraint_spec.source)["lark"]
    assert second.constraint_spec != first.constraint_spec


async def test_an_agent_remembers() -> None:
    llm = tool_llm(*SCRIPT, final_answer("I said 44."))
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    agent = FunctionAgent(tools=TOOLS, llm=llm)
    await run(agent, memory=memory)
    output, _ = await run(agent, "What did you say?", memory=memory)
    assert answer_of(output) == "I said 44."
    assert [message.role.value for message in memory.get_all()] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert any(isinstance(block, ToolCallBlock) for block in memory.get_all()[1].blocks)
    assert '"a": 3, "b": 41' in prompts(llm)[2]


async def test_a_tool_whose_result_is_the_answer() -> None:
    llm = tool_llm(tool_call("weather", {"city": "Oslo"}), final_answer("As I said, it rains."))
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(async_fn=weather, return_direct=True)], llm=llm)
    output, _ = await run(agent, "How is Oslo?", memory=memory)
    assert answer_of(output) == "It rains in Oslo."
    output, _ = await run(agent, "Again?", memory=memory)
    assert answer_of(output) == "As I said, it rains."
    assert "It rains in Oslo." in prompts(llm)[1]


async def test_an_endless_caller_ends_at_its_last_iteration() -> None:
    agent = FunctionAgent(tools=TOOLS, llm=tool_llm(SCRIPT[0]))
    with pytest.raises(WorkflowRuntimeError, match="Max iterations of 3"):
        await run(agent, max_iterations=3)


async def test_an_agent_with_an_output_class() -> None:
    class Sum(BaseModel):
        total: int

    llm = tool_llm(*SCRIPT, '{"total": 44}')
    output, _ = await run(FunctionAgent(tools=TOOLS, llm=llm, output_cls=Sum))
    assert output.structured_response == {"total": 44}


async def test_a_workflow_of_tools_makes_a_function_agent() -> None:
    workflow = AgentWorkflow.from_tools_or_functions(TOOLS, llm=tool_llm(*SCRIPT))
    assert [type(agent) for agent in workflow.agents.values()] == [FunctionAgent]
    output, _ = await run(workflow)
    assert answer_of(output) == "It is 44."


async def test_agents_hand_over() -> None:
    llm = tool_llm(
        tool_call("handoff", {"to_agent": "adder", "reason": "It is about numbers."}),
        *SCRIPT,
    )
    front = FunctionAgent(name="front", description="Welcomes.", llm=llm, tools=[weather], can_handoff_to=["adder"])
    adder = FunctionAgent(name="adder", description="Adds.", llm=llm, tools=[add])
    output, events = await run(AgentWorkflow(agents=[front, adder], root_agent="front"))
    assert answer_of(output) == "It is 44."
    assert output.current_agent_name == "adder"
    assert [event.tool_name for event in of(ToolCall, events)] == ["handoff", "add"]
    first, second, _ = prompts(llm)
    assert "Tell the weather" in first
    assert "Add two numbers." not in first
    assert "Add two numbers." in second
    assert "It is about numbers." in second


async def test_cancelling_an_agent_ends_the_request() -> None:
    llm = tool_llm("Thought: " + "it goes on " * 300, delay=0.001)
    backend = backend_of(llm.engine)
    handler = FunctionAgent(tools=TOOLS, llm=llm).run("What is 3 + 41?")
    await until(lambda: backend.steps > 3)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    await until(lambda: backend.running == 0)
    assert backend.steps < 300


def test_an_agent_takes_any_local_llm() -> None:
    assert LocalLLM("some/model", context_window=512).metadata.is_function_calling_model
