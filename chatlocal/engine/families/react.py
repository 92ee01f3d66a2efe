"""Function calls as Qwen-1 was trained to make them: ReAct, written into the turns of a conversation.

The texts are facts of the training; the rules are those of the newest `openai_api.py` in Qwen's repository: the list
of functions stands in front of the last question that has an answer already, or else of the question itself; an answer
that ends with a function's result is gone on with, not begun anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from chatlocal.engine.errors import TemplateError
from chatlocal.engine.messages import ChatMessage, Tool, ToolCall

# What an answer is opened with after a function's result.
THOUGHT = "Thought:"

_FUNCTION = (
    "{name}: Call this tool to interact with the {name} API. What is the {name} API useful for? {description}"
    " Parameters: {parameters}"
)
_INSTRUCTION = """Answer the following questions as best you can. You have access to the following APIs:

{functions}

Use the following format:

Question: the input question you must answer
Thought: you should always think about what to do
Action: the action to take, should be one of [{names}]
Action Input: the input to the action
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can be repeated zero or more times)
Thought: I now know the final answer
Final Answer: the final answer to the original input question

Begin!"""


def with_functions(turns: Sequence[ChatMessage], tools: Sequence[Tool]) -> tuple[ChatMessage, ...]:
    """User and assistant turns in which the calls, their results and the list of functions are text.

    TemplateError names the message where a result follows no call.
    """
    talk = _merged(turns, bool(tools))
    if tools:
        # In front of the question of the last round that is answered, or of the only question.
        asked = max((index for index, turn in enumerate(talk[:-1]) if turn.role == "user"), default=0)
        question = f"{_instruction(tools)}\n\nQuestion: {talk[asked].text}"
        talk[asked] = replace(talk[asked], content=question)
    return tuple(talk)


def _instruction(tools: Sequence[Tool]) -> str:
    functions = (
        _FUNCTION.format(
            name=tool.name,
            description=tool.description,
            parameters=json.dumps(tool.parameters, ensure_ascii=False),
        )
        for tool in tools
    )
    names = ", ".join(tool.name for tool in tools)
    return _INSTRUCTION.format(functions="\n\n".join(functions), names=names).rstrip()


def _merged(turns: Sequence[ChatMessage], has_tools: bool) -> list[ChatMessage]:
    """The turns with one assistant turn for each stretch of calls, results and answers."""
    talk: list[ChatMessage] = []
    for role, text in _written(turns, has_tools):
        if role == "assistant" and talk and talk[-1].role == "assistant":
            talk[-1] = replace(talk[-1], content=f"{talk[-1].text}\n{text}")
        else:
            talk.append(ChatMessage(role, text))
    if turns[-1].role == "tool":
        talk[-1] = replace(talk[-1], content=f"{talk[-1].text}\n{THOUGHT}")
    return talk


def _written(turns: Sequence[ChatMessage], has_tools: bool) -> Iterator[tuple[str, str]]:
    """Role and text of what is written, each call with its result as soon as that is there."""
    waiting: list[ToolCall] = []
    thought = ""
    for index, turn in enumerate(turns):
        text = _trimmed(turn.text)
        if turn.role == "tool":
            call = _called(waiting, turn, index)
            waiting.remove(call)
            yield "assistant", f"{_action(call, thought)}\nObservation: {text}"
            thought = ""
            continue
        for call in waiting:
            yield "assistant", _action(call, thought)
            thought = ""
        waiting = list(turn.tool_calls)
        if turn.tool_calls:
            thought = text or _trimmed(turn.reasoning or "")
        elif turn.role == "assistant" and has_tools:
            yield "assistant", f"Thought: I now know the final answer.\nFinal Answer: {text}"
        else:
            yield turn.role, text
    for call in waiting:
        yield "assistant", _action(call, thought)
        thought = ""


def _called(waiting: Sequence[ToolCall], result: ChatMessage, index: int) -> ToolCall:
    """The call that a result belongs to: by its id, or the first that waits where the result names none."""
    named = [call for call in waiting if result.tool_call_id is None or call.id == result.tool_call_id]
    if not named:
        raise TemplateError(
            f"Message {index} is a function's result, and no call before it waits for one: put the assistant's message"
            " with the call before it."
        )
    return named[0]


def _action(call: ToolCall, thought: str) -> str:
    thought = thought if thought.startswith(THOUGHT) else f"{THOUGHT} {thought}"
    return f"{thought}\nAction: {call.name}\nAction Input: {call.arguments}"


def _trimmed(text: str) -> str:
    return text.lstrip("\n").rstrip()
