"""What other parsers were reported to get wrong, each with the values that are right."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallDelta, CallStart, Event
from chatlocal.engine.messages import ToolCall
from tests.engine.toolcalls.reading import events_of


def _calls(format: str, raw: str, tools: Any = None) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in toolcalls.get(format).parse(raw, tools).calls]


def _arguments(events: list[Event], index: int = 0) -> str:
    return "".join(event.arguments for event in events if isinstance(event, CallDelta) and event.index == index)


@pytest.mark.parametrize("whole", [True, False])
def test_a_closing_tag_inside_of_a_string_does_not_end_a_call(whole: bool) -> None:
    raw = '<tool_call>\n{"name": "write", "arguments": {"path": "a.txt", "text": "x </tool_call> y"}}\n</tool_call>'
    arguments = '{"path": "a.txt", "text": "x </tool_call> y"}'
    events = events_of("hermes", [raw] if whole else list(raw))
    assert [event.name for event in events if isinstance(event, CallStart)] == ["write"]
    assert _arguments(events) == arguments
    assert len(events) == 2
    assert toolcalls.get("hermes").parse(raw).content == ""


def test_calls_joined_by_a_semicolon_before_prose_with_braces() -> None:
    raw = (
        '<|python_tag|>{"name": "a", "parameters": {"q": "x; y"}};'
        '{"name": "b", "parameters": {"k": {"n": [1, 2]}}} I used {b} here'
    )
    expected = [("a", {"q": "x; y"}), ("b", {"k": {"n": [1, 2]}})]
    assert _calls("llama3", raw) == expected
    assert toolcalls.get("llama3").parse(raw).content.strip() == "I used {b} here"
    assert _calls("llama3", raw.replace("parameters", "arguments")) == expected
    assert _calls("llama3", raw.replace("};{", "}\n{")) == expected


def test_chatglm3_calls() -> None:
    raw = "get_weather\n```python\ntool_call(location='beijing', unit='celsius')\n```"
    assert _calls("chatglm3", raw) == [("get_weather", {"location": "beijing", "unit": "celsius"})]


def test_chatglm3_answer_with_a_call() -> None:
    raw = 'Let me check.<|assistant|>get_weather\n```python\ntool_call(location="beijing")\n```'
    content, calls, invalid = toolcalls.get("chatglm3").parse(raw)
    assert (content, invalid) == ("Let me check.", [])
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("get_weather", {"location": "beijing"})]


@pytest.mark.parametrize("tools", [None, ["get_weather"]])
def test_a_name_alone_is_text(tools: list[str] | None) -> None:
    assert toolcalls.get("chatglm3").parse("get_weather", tools) == ("get_weather", [], [])
    assert toolcalls.get("glm4").parse("get_weather", tools) == ("get_weather", [], [])


@pytest.mark.parametrize(
    ("format", "pattern"),
    [
        ("chatglm3", "x\n```python\ntool_call(a={})\n```"),
        ("pythonic", "[x(a={})]"),
        ("llama3", "[x(a={})]"),
    ],
)
def test_nothing_is_executed(format: str, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(os, "system", ran.append)
    monkeypatch.setattr("builtins.eval", ran.append)
    monkeypatch.setattr("builtins.exec", ran.append)
    code = '__import__("os").system("id")'
    content, calls, invalid = toolcalls.get(format).parse(pattern.format(code))
    assert (content, calls, ran) == ("", [], [])
    assert [call.name for call in invalid] == ["x"]
    assert code in invalid[0].raw


@pytest.mark.parametrize("format", ["qwen3_coder", "glm4.5", "hermes", "pythonic", "chatglm3"])
def test_nested_arguments_come_back_as_objects(format: str) -> None:
    tool = {
        "name": "save",
        "parameters": {
            "type": "object",
            "$defs": {"Address": {"type": "object", "properties": {"street": {"type": "string"}}}},
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/Address"}},
        },
    }
    call = ToolCall("", "save", '{"name": "A", "address": {"street": "S"}}')
    raw = toolcalls.get(format).dump([call])
    assert _calls(format, raw, [tool]) == [("save", {"name": "A", "address": {"street": "S"}})]


@pytest.mark.parametrize("value", ["42", "true", "null", '{"a": 1}', "[1]"])
def test_the_last_brace_is_neither_lost_nor_doubled(value: str) -> None:
    pieces = ['<tool_call>\n{"name": "get", "arguments": {"id": ' + value[0], value[1:], "}}\n</tool_call>"]
    parser = toolcalls.get("hermes").parser()
    deltas = ""
    for piece in pieces:
        deltas += _arguments(parser.feed(piece))
    assert deltas == f'{{"id": {value}}}'
    assert json.loads(deltas) == {"id": json.loads(value)}
    assert parser.flush() == []


def test_parallel_calls_have_their_own_indices_and_ids() -> None:
    raw = "\n".join(
        f'<tool_call>\n{{"name": "get_w", "arguments": {{"city": "{city}"}}}}\n</tool_call>'
        for city in ("Paris", "Rome")
    )
    parser = toolcalls.get("hermes").parser()
    events = [event for char in raw for event in parser.feed(char)] + parser.flush()
    starts = [event for event in events if isinstance(event, CallStart)]
    assert [(start.index, start.name) for start in starts] == [(0, "get_w"), (1, "get_w")]
    assert starts[0].id != starts[1].id
    assert _arguments(events, 0) == '{"city": "Paris"}'
    assert _arguments(events, 1) == '{"city": "Rome"}'
