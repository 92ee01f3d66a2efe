"""The text protocol of the core's ReActAgent: every step that a model writes is one that the core's parser reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.react.output_parser import ReActOutputParser
from llama_index.core.agent.react.types import (
    ActionReasoningStep,
    BaseReasoningStep,
    ObservationReasoningStep,
    ResponseReasoningStep,
)
from llama_index.core.agent.workflow import AgentOutput, ReActAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow.errors import WorkflowRuntimeError
from pydantic import BaseModel, Field

from chatlocal.engine.constraints import compile
from chatlocal.engine.engine import Engine
from chatlocal.integrations.llama_index import LocalLLM
from chatlocal.integrations.llama_index_react import react_step, thought
from tests.integrations.llama_index_calls import agents_look_at_all, ask
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_model, tiny_tokenizer

SEEDS = range(8)


def add(a: int, b: int) -> int:
    """Add two numbers.

    Tool Name: none, this is a description.
    """
    return a + b


def weather(city: str, days: int = 1) -> str:
    """Tell the weather of a city."""
    return f"It rains in {city} for {days} days."


ADD = FunctionTool.from_defaults(add)
WEATHER = FunctionTool.from_defaults(weather)
TOOLS = [ADD, WEATHER]
QUESTION = ChatMessage(role="user", content="What is 3 + 4?")


def prompt(*steps: BaseReasoningStep, tools: Any = TOOLS, **options: Any) -> list[ChatMessage]:
    """What the agent sends after these steps."""
    return ReActChatFormatter.from_defaults(**options).format(tools, [QUESTION], list(steps))


def parsed(text: str) -> BaseReasoningStep:
    return ReActOutputParser().parse(text)


@pytest.fixture(scope="module")
def tiny_llm() -> Iterator[LocalLLM]:
    """A random model: it writes whatever the grammar lets through."""
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 8192
    engine = Engine(tiny_model(max_position_embeddings=8192), tokenizer)
    yield LocalLLM(engine=engine, temperature=1.0, max_tokens=1500)
    engine.close()


def accepts(messages: list[ChatMessage], text: str) -> bool:
    spec = react_step(messages)
    assert spec is not None
    return compile(spec, tiny_tokenizer()).accepts(text)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_model_writes_steps_that_the_parser_reads(tiny_llm: LocalLLM, seed: int) -> None:
    response = tiny_llm.chat(prompt(), seed=seed)
    text = response.message.content or ""
    step = parsed(text)
    assert "(Implicit)" not in step.get_content()  # what the parser says where it finds no form
    if isinstance(step, ResponseReasoningStep):
        assert step.response
        return
    assert isinstance(step, ActionReasoningStep)
    if response.raw["finish_reason"] == "length":
        return
    head, _, arguments = text.partition("\nAction Input: ")
    assert head == f"Thought: {head[9:].partition(chr(10))[0]}\nAction: {step.action}"
    assert step.action_input == json.loads(arguments)
    wanted = {"add": {"a", "b"}, "weather": {"city"}}[step.action]
    assert wanted <= set(step.action_input) <= {"a", "b", "city", "days"}


@pytest.mark.parametrize("seed", SEEDS)
def test_without_tools_a_random_model_can_only_answer(tiny_llm: LocalLLM, seed: int) -> None:
    text = tiny_llm.chat(prompt(tools=[]), seed=seed, max_tokens=500).message.content or ""
    assert isinstance(parsed(text), ResponseReasoningStep)


def test_a_random_model_without_the_grammar_writes_no_step(tiny_llm: LocalLLM) -> None:
    free = LocalLLM(engine=tiny_llm.engine, temperature=1.0, max_tokens=100, react_grammar=False)
    assert "(Implicit)" in parsed(free.chat(prompt(), seed=1).message.content or "").get_content()


STEPS = [
    'Thought: I add.\nAction: add\nAction Input: {"a": 3, "b": 4}',
    'Thought: 用户说中文: I ask.\nAction: weather\nAction Input: {"city": "Zürich"}',
    "Thought: I know.\nAnswer: 7",
    "Thought: I know: it is easy.\nAnswer: Thought: 7\nAction: no more\n\nAnswer: 7",
    "Thought: Action and Answer are words.\nAnswer: yes",
]
NO_STEPS = [
    "7",
    "Thought: I add.\nAction: sub\nAction Input: {}",
    'Thought: I add.\nAction: add\nAction Input: {"a": 3}',
    'Thought: I add.\nAction: add\nAction Input: {"a": 3, "b": 4}\nObservation: 8',
    "Thought: I add.\nAction: add",
    "Thought: \nAnswer: 7",
    "Thought: I know.\nAnswer: ",
    "Thought: I know.\n\nAnswer: 7",
    "Thought: the Answer: 7\nAnswer: 7",
    'Thought: Action: add\nAction: add\nAction Input: {"a": 3, "b": 4}',
    f"Thought: {'on and ' * 100}\nAnswer: 7",
]


@pytest.mark.parametrize("text", STEPS)
def test_a_step(text: str) -> None:
    assert accepts(prompt(), text)
    found = re.fullmatch(r"Thought: (.*)\n(?:Answer: ((?s:.*))|Action: (\w+)\nAction Input: (.*))", text)
    assert found is not None
    step = parsed(text)
    if isinstance(step, ActionReasoningStep):
        assert (step.thought, step.action, step.action_input) == (found[1], found[3], json.loads(found[4]))
    else:
        assert isinstance(step, ResponseReasoningStep)
        assert (step.thought, step.response) == (found[1], found[2])


@pytest.mark.parametrize("text", NO_STEPS)
def test_no_step(text: str) -> None:
    assert not accepts(prompt(), text)


PIECES = st.sampled_from(["Action", "Answer", ":", "A", "ction", "nswer", "Act", "n", " ", "x", "é", "ns", "\n"])


@given(st.lists(PIECES, min_size=1, max_size=8).map("".join))
@example("AnAnswer:")
@example("AAction")
@example("ActiAction:")
def test_a_thought_is_any_line_without_the_labels_of_the_parser(text: str) -> None:
    wanted = "\n" not in text and not re.search("Action:|Answer:", text) and not text[0].isspace()
    assert bool(re.fullmatch(thought(), text)) == wanted


@pytest.mark.parametrize("options", [{}, {"context": "You work {carefully}.\n\n## Tools"}])
def test_both_prompts_of_the_core_are_known(options: dict[str, Any]) -> None:
    assert accepts(prompt(**options), STEPS[0])
    # An agent's prompt may stand behind the system prompt of the model object.
    assert accepts([ChatMessage(role="system", content="Be brief."), *prompt(**options)], STEPS[0])


def test_other_prompts_are_left_alone() -> None:
    header = prompt()[0].content or ""
    assert react_step([QUESTION]) is None
    assert react_step([ChatMessage(role="system", content="Be brief."), QUESTION]) is None
    assert react_step([ChatMessage(role="user", content=header)]) is None
    assert react_step([ChatMessage(role="system", content=header + " And be brief.")]) is None
    mine = ReActChatFormatter(system_header="Think. Tools: {tool_desc} ({tool_names})")
    assert react_step(mine.format(TOOLS, [QUESTION])) is None


def test_tools_that_cannot_be_held_to_a_schema_take_any_object() -> None:
    class Odd(BaseModel):
        numbers: list[int] = Field(json_schema_extra={"contains": {"const": 1}})

    odd = FunctionTool.from_defaults(weather, name="odd", fn_schema=Odd)
    messages = prompt(tools=[ADD, odd])
    assert accepts(messages, 'Thought: x\nAction: odd\nAction Input: {"anything": [1]}')
    assert not accepts(messages, 'Thought: x\nAction: odd\nAction Input: "text"')
    assert not accepts(messages, "Thought: x\nAction: add\nAction Input: {}")


def test_descriptions_in_another_form_give_the_names_alone() -> None:
    (system, question) = prompt()
    other = (system.content or "").replace("> Tool Name: ", "* ")
    messages = [ChatMessage(role="system", content=other), question]
    assert accepts(messages, 'Thought: x\nAction: weather\nAction Input: {"anything": 1}')
    assert not accepts(messages, "Thought: x\nAction: sub\nAction Input: {}")


def test_a_name_that_the_parser_cannot_read_is_no_action() -> None:
    spaced = FunctionTool.from_defaults(add, name="add numbers")
    quoted = FunctionTool.from_defaults(add, name='add"2')
    messages = prompt(tools=[spaced, quoted])
    arguments = '\nAction Input: {"a": 3, "b": 4}'
    assert not accepts(messages, f"Thought: x\nAction: add numbers{arguments}")
    assert accepts(messages, f'Thought: x\nAction: add"2{arguments}')


def call(a: int = 3) -> ActionReasoningStep:
    return ActionReasoningStep(thought="I add.", action="add", action_input={"a": a, "b": 4})


def seen(text: str = "7") -> ObservationReasoningStep:
    return ObservationReasoningStep(observation=text)


@pytest.mark.parametrize(
    ("steps", "may_act"),
    [
        ((), True),
        ((call(), seen()), True),
        ((call(), seen(), call(1), seen("5")), True),
        ((call(), seen("wait"), call(), seen("7")), True),  # the outcome changed: asking again made sense
        ((call(), seen(), call(), seen()), False),
        ((call(), seen(), call(1), seen("5"), call(), seen()), False),
    ],
)
@pytest.mark.parametrize("role", [MessageRole.USER, MessageRole.TOOL])
def test_calls_that_bring_nothing_new_come_to_an_end(steps: Any, may_act: bool, role: MessageRole) -> None:
    messages = prompt(*steps, observation_role=role)
    assert accepts(messages, STEPS[0]) == may_act
    assert accepts(messages, STEPS[2])
    # With the next question it starts anew.
    assert accepts([*messages, QUESTION], STEPS[0])


@pytest.mark.parametrize("endpoint", ["chat", "achat", "stream_chat", "astream_chat"])
async def test_the_form_reaches_the_backend_unless_something_else_is_asked_for(endpoint: str) -> None:
    llm = LocalLLM(engine=scripted_engine("Thought: x\nAnswer: 7", context_length=4096))
    off = LocalLLM(engine=llm.engine, react_grammar=False)
    await ask(llm, endpoint, prompt())
    await ask(off, endpoint, prompt())
    await ask(llm, endpoint, prompt(), response_format={"type": "text"})
    await ask(llm, endpoint, prompt(), response_format={"type": "json_object"})
    await ask(llm, endpoint, prompt(), tools=[ADD], tool_choice="none")
    await ask(llm, endpoint, [QUESTION])
    step, *others = [request.constraint_spec for request in backend_of(llm.engine).requests]
    assert step == react_step(prompt())
    assert [spec and spec.kind for spec in others] == [None, None, "json_schema", None, None]


@agents_look_at_all
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_agent_from_end_to_end(streaming: bool) -> None:
    engine = scripted_engine(STEPS[0], "Thought: I know.\nAnswer: It is 7.", context_length=4096)
    agent = ReActAgent(tools=TOOLS, llm=LocalLLM(engine=engine), streaming=streaming, system_prompt="Be brief.")
    handler = agent.run("What is 3 + 4?", max_iterations=5)
    results = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    output = await handler
    assert output.response.content == "It is 7."
    assert [(result.tool_name, result.tool_output.raw_output) for result in results] == [("add", 7)]
    assert all(request.constraint_spec is not None for request in backend_of(engine).requests)


@agents_look_at_all
async def test_a_random_model_as_an_agent_makes_nothing_but_steps(tiny_llm: LocalLLM) -> None:
    """It ends with an answer or at its last iteration, and no step had to be asked for again."""
    llm = LocalLLM(engine=tiny_llm.engine, temperature=1.0, max_tokens=1500, seed=3)
    handler = ReActAgent(tools=TOOLS, llm=llm).run("What is 3 + 4?", max_iterations=3)
    retried = [event.retry_messages async for event in handler.stream_events() if isinstance(event, AgentOutput)]
    assert not any(retried)
    if len(retried) < 3:
        assert (await handler).response.content
    else:
        with pytest.raises(WorkflowRuntimeError, match="Max iterations of 3"):
            await handler
