"""Qwen-1's function calls in the prompt: the published cases, and what those do not show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chatlocal.engine import families
from chatlocal.engine.errors import TemplateError

_GOLDEN = Path(__file__).parents[2] / "golden" / "qwen_react.json"
CASES = json.loads(_GOLDEN.read_text("utf-8"))["prompt_cases"]
QWEN = families.get("qwen")
TOOLS = [{"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object", "properties": {}}}]


def call(name: str, id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_prompts_with_functions_are_those_of_the_reference(case: dict[str, Any]) -> None:
    prompt = QWEN.render(case["messages"], case["functions"])
    assert prompt.text == case["prompt"]
    assert prompt.opened == ("Thought:" if case["mode"].startswith("text_completion") else "")
    assert "\nObservation:" in prompt.next_turn


def test_a_reasoning_is_the_thought_of_a_call() -> None:
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "reasoning": "I look.", "tool_calls": [call("weather", "1")]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    assert QWEN.render(messages, TOOLS).text.endswith(
        "assistant\nThought: I look.\nAction: weather\nAction Input: {}\nObservation: sunny\nThought:"
    )


def test_parallel_calls_stand_with_their_results() -> None:
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Both.", "tool_calls": [call("one", "1"), call("two", "2")]},
        {"role": "tool", "tool_call_id": "2", "content": "second"},
        {"role": "tool", "tool_call_id": "1", "content": "first"},
    ]
    assert QWEN.render(messages).text.endswith(
        "assistant\nThought: Both.\nAction: two\nAction Input: {}\nObservation: second\n"
        "Thought: \nAction: one\nAction Input: {}\nObservation: first\nThought:"
    )


def test_a_result_without_a_call_is_refused_with_its_place() -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "1", "content": "x"}]
    with pytest.raises(TemplateError, match="Message 1 "):
        QWEN.render(messages, TOOLS)


def test_braces_in_descriptions_are_text() -> None:
    tool = {"name": "f", "description": "{name} 查天气 <b>&'", "parameters": {"type": "object", "properties": {}}}
    text = QWEN.render([{"role": "user", "content": "{functions}"}], [tool]).text
    assert "{name} 查天气 <b>&' Parameters: " in text
    assert "Question: {functions}<|im_end|>" in text
