"""Events as LlamaIndex responses: what the scripted engine cannot show, the model's thinking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.base.llms.types import TextBlock, ThinkingBlock, ToolCallBlock

from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Event, Finish, Reasoning, Text, Usage
from chatlocal.integrations.llama_index_answers import AnswerSoFar, read_arguments

EVENTS = (Reasoning("let "), Reasoning("me"), Text("It is "), Text("42."), Finish("stop", Usage(3, 9, reasoning=5)))


def test_thinking_has_a_block_and_deltas_of_its_own() -> None:
    answer = AnswerSoFar("tiny")
    responses = []
    for event in EVENTS:
        answer.add(event)
        responses.append(answer.chat(streaming=True))
    assert [response.delta for response in responses] == ["", "", "It is ", "42.", ""]
    assert [response.additional_kwargs.get("thinking_delta") for response in responses] == [
        "let ",
        "me",
        None,
        None,
        None,
    ]
    assert [response.message.content for response in responses] == ["", "", "It is ", "It is 42.", "It is 42."]
    assert responses[0].message.blocks == [ThinkingBlock(content="let "), TextBlock(text="")]
    assert responses[-1].message.blocks == [ThinkingBlock(content="let me", num_tokens=5), TextBlock(text="It is 42.")]


def grown(*events: Event) -> list[Any]:
    """The responses of a stream of events."""
    answer = AnswerSoFar("tiny")
    responses = []
    for event in events:
        answer.add(event)
        responses.append(answer.chat(streaming=True))
    return responses


END = Finish("tool_calls", Usage(3, 9))


def test_calls_are_cumulative_blocks() -> None:
    responses = grown(
        Text("Wait."),
        CallStart(0, "c0", "add"),
        CallDelta(0, '{"a": 1'),
        CallDelta(0, ', "b": "x'),
        CallStart(1, "c1", "stop"),
        CallDelta(0, 'y"}'),
        END,
    )
    seen = [[block.tool_kwargs for block in r.message.blocks if isinstance(block, ToolCallBlock)] for r in responses]
    whole = {"a": 1, "b": "xy"}
    assert seen == [[], [{}], [{"a": 1}], [{"a": 1, "b": "x"}], [{"a": 1, "b": "x"}, {}], [whole, {}], [whole, {}]]
    assert responses[-1].message.blocks == [
        TextBlock(text="Wait."),
        ToolCallBlock(tool_call_id="c0", tool_name="add", tool_kwargs=whole),
        ToolCallBlock(tool_call_id="c1", tool_name="stop", tool_kwargs={}),
    ]
    assert responses[-1].message.additional_kwargs == {
        "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": "xy"}'}},
            {"id": "c1", "type": "function", "function": {"name": "stop", "arguments": ""}},
        ]
    }
    assert [response.delta for response in responses] == ["Wait.", *[""] * 6]


def test_a_response_does_not_change_with_those_after_it() -> None:
    responses = grown(CallStart(0, "c0", "add"), CallDelta(0, '{"a": [1'), CallDelta(0, ", 2]}"), END)
    assert [response.message.blocks[0].tool_kwargs for response in responses[1:3]] == [{"a": [1]}, {"a": [1, 2]}]
    first = responses[0].message.additional_kwargs["tool_calls"][0]
    assert first["function"]["arguments"] == ""


def test_a_call_without_text_has_no_empty_text() -> None:
    (*_, last) = grown(CallStart(0, "c0", "stop"), END)
    assert last.message.blocks == [ToolCallBlock(tool_call_id="c0", tool_name="stop", tool_kwargs={})]
    assert last.message.content is None


def test_a_call_that_breaks_becomes_an_invalid_one() -> None:
    responses = grown(
        CallStart(0, "c0", "add"),
        CallDelta(0, '{"a": '),
        CallStart(1, "c1", "stop"),
        CallInvalid(0, '{"a": ', "cut off"),
        CallInvalid(2, "<tool_call>", "no name"),
        END,
    )
    message = responses[-1].message
    assert [block.tool_name for block in message.blocks] == ["stop"]
    assert [call["id"] for call in message.additional_kwargs["tool_calls"]] == ["c1"]
    assert message.additional_kwargs["invalid_tool_calls"] == [
        {"id": "c0", "name": "add", "raw": '{"a": ', "error": "cut off"},
        {"id": None, "name": None, "raw": "<tool_call>", "error": "no name"},
    ]
    assert json.loads(message.model_dump_json())["additional_kwargs"] == message.additional_kwargs
    assert "invalid_tool_calls" not in responses[2].message.additional_kwargs


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("{", {}),
        ('{"a', {}),
        ('{"a": "x', {"a": "x"}),
        ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}),
        ('{"a": 1e999}', {"a": float("inf")}),
        ('{"a": "\\ud800"}', {"a": "\ud800"}),
        ("[1]", {}),
        ("none", {}),
    ],
)
def test_arguments_as_far_as_they_go(text: str, values: dict[str, Any]) -> None:
    assert read_arguments(text) == values


def test_a_completion_keeps_thinking_out_of_its_text() -> None:
    answer = AnswerSoFar("tiny")
    deltas = []
    for event in EVENTS:
        answer.add(event)
        deltas.append(answer.completion(streaming=True).additional_kwargs.get("thinking_delta"))
    assert answer.completion().text == "It is 42."
    assert deltas == ["let ", "me", None, None, None]


def test_a_whole_response_has_no_deltas() -> None:
    answer = AnswerSoFar("tiny")
    for event in EVENTS:
        answer.add(event)
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    for response in (answer.chat(), answer.completion()):
        assert response.delta is None
        assert response.additional_kwargs == usage
        assert response.raw == {"usage": usage, "finish_reason": "stop", "model": "tiny"}
