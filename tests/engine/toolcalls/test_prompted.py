"""Calls of models that were told of tools in words: with the tags that were asked for, bare, and fenced."""

from __future__ import annotations

import json

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallDelta, CallStart, Text
from chatlocal.engine.messages import ToolCall
from tests.engine.toolcalls.reading import events_of

CALL = '{"name": "search", "arguments": {"q": "a```b"}}'
OTHER = '{"name": "other", "arguments": {"q": 1}}'


def _read(text: str) -> tuple[str, list[tuple[str, object]], int]:
    whole = events_of("prompted", [text], ["search"])
    assert events_of("prompted", list(text), ["search"]) == whole
    content, calls, invalid = toolcalls.get("prompted").parse(text, ["search"])
    return content, [(call.name, json.loads(call.arguments)) for call in calls], len(invalid)


def test_each_call_has_a_block_of_its_own() -> None:
    written = toolcalls.get("prompted").dump([ToolCall("", "f", '{"a": 1}'), ToolCall("", "g", "")])
    assert written == (
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    )


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>\n{CALL}",
        CALL,
        f"\n {CALL}<end_of_turn>",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```</s>",
        f"```json\n{CALL}",
        CALL.replace("arguments", "parameters"),
    ],
)
def test_a_call_is_read_in_every_form(text: str) -> None:
    assert _read(text) == ("", [("search", {"q": "a```b"})], 0)


def test_calls_in_a_row() -> None:
    assert _read(f"{CALL}\n{CALL}")[1] == [("search", {"q": "a```b"})] * 2
    assert _read(f"{CALL}\n<tool_call>{CALL}</tool_call>")[1] == [("search", {"q": "a```b"})] * 2


@pytest.mark.parametrize(
    "text",
    [
        OTHER,
        f"```json\n{OTHER}\n```",
        f"Call {CALL}",
        f"As JSON:\n```json\n{CALL}\n```",
        '{"q": 1}',
        "```python\nf()\n```",
    ],
)
def test_other_json_is_text(text: str) -> None:
    assert _read(text) == (text, [], 0)


def test_text_behind_a_fence_stays() -> None:
    assert _read(f"```json\n{CALL}\n```\nDone.") == ("Done.", [("search", {"q": "a```b"})], 0)


@pytest.mark.parametrize(
    "text", ['```json\n{"name": "search", "arguments": {"q": ', '{"name": "search", "arguments": {"q": ']
)
def test_a_cut_call_is_told(text: str) -> None:
    assert _read(text)[1:] == ([], 1)


def test_a_fence_is_held_back_until_it_is_a_call_or_none() -> None:
    parser = toolcalls.get("prompted").parser(["search"])
    assert parser.feed('```json\n{"na') == []
    start, delta = parser.feed('me": "search", "arguments": {"q"')
    assert isinstance(start, CallStart)
    assert delta == CallDelta(0, '{"q"')
    assert toolcalls.get("prompted").parser(["search"]).feed("```json\n[1") == [Text("```json\n[1")]
