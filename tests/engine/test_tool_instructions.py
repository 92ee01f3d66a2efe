"""Conversations for models that are told of tools in words."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine import families, toolcalls
from chatlocal.engine.messages import ChatMessage, Image, Tool, ToolCall
from chatlocal.engine.tool_instructions import with_tools

WEATHER = Tool(
    "get_weather",
    "Get the weather in a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
    },
)
HISTORY: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Rome and Oslo?"},
    {
        "role": "assistant",
        "content": "I look it up.",
        "tool_calls": [
            {"id": "a", "name": "get_weather", "arguments": '{"city": "Rome"}'},
            {"id": "b", "name": "get_weather", "arguments": '{"city": "Oslo"}'},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "tool", "tool_call_id": "b", "content": "snow"},
]
CALLS = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
)


def test_calls_and_results_of_the_past_are_text() -> None:
    assert with_tools(HISTORY, ()) == (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Weather in Rome and Oslo?"),
        ChatMessage(
            "assistant", "I look it up.\nLet me ask get_weather (city Rome).\nLet me ask get_weather (city Oslo)."
        ),
        ChatMessage("user", "Result of get_weather: sunny\nResult of get_weather: snow"),
    )


def test_where_a_call_is_asked_for_past_ones_stand_in_its_form() -> None:
    told = with_tools(HISTORY, [WEATHER])
    assert ChatMessage("assistant", f"I look it up.\n{CALLS}") in told


def test_results_between_turns_stay_where_they_are() -> None:
    turns = with_tools(
        [*HISTORY, {"role": "assistant", "content": "Sunny, snow."}, {"role": "user", "content": "Oh"}], ()
    )
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ({"role": "tool", "name": "f", "content": "1"}, "Result of f: 1"),
        ({"role": "tool", "tool_call_id": "unknown", "content": "1"}, "Result: 1"),
    ],
)
def test_results_whose_call_is_not_there(turn: dict[str, Any], text: str) -> None:
    assert with_tools([turn], ()) == (ChatMessage("user", text),)


def test_a_conversation_without_calls_and_tools_stays_as_it_is() -> None:
    turns = (ChatMessage("user", ("a", Image("b.png"))), ChatMessage("assistant", "c"))
    assert with_tools(turns, ()) == turns


def test_the_tools_are_told_in_words_behind_the_last_user_turn() -> None:
    *others, last = with_tools([{"role": "user", "content": "Weather in Rome?"}], [WEATHER, {"name": "clock_time"}])
    assert last.role == "user"
    assert last.text.startswith("Weather in Rome?\n\n")
    for words in ("get_weather", "Get the weather in a city", "city (Name of the city)", '"fahrenheit"', "clock_time"):
        assert words in last.text
        assert not any(words in turn.text for turn in others)
    assert "properties" not in last.text


def test_every_worked_example_is_a_call_of_its_own_tools() -> None:
    turns = with_tools([{"role": "user", "content": "Hi"}], [WEATHER])
    assert len(turns) >= 3
    for asked, answer in zip(turns[:-1:2], turns[1:-1:2], strict=True):
        content, calls, invalid = toolcalls.get("prompted").parse(answer.text)
        assert (content, len(calls), invalid) == ("", 1, [])
        assert calls[0].name in asked.text


def test_without_worked_examples_the_form_is_said() -> None:
    [turn] = with_tools([{"role": "user", "content": "Hi"}], [WEATHER], examples=False)
    assert turn.text.startswith(with_tools([{"role": "user", "content": "Hi"}], [WEATHER])[-1].text)
    assert "<tool_call>" in turn.text


@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_the_system_text_stays_first_and_roles_are_those_that_every_format_has(tools: list[Tool]) -> None:
    turns = with_tools(HISTORY, tools)
    assert turns[0] == ChatMessage("system", "Be brief.")
    assert {turn.role for turn in turns} == {"system", "user", "assistant"}
    assert not any(turn.tool_calls for turn in turns)
    families.get("gemma").render(turns, merge_system=True, strict=True)


def test_references_are_written_out() -> None:
    schema = {
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/Place"}},
        "$defs": {"Place": {"type": "object", "properties": {"street": {"type": "string"}}}},
    }
    last = with_tools([{"role": "user", "content": "Hi"}], [Tool("go", "", schema)])[-1]
    assert "street" in last.text
    assert "$ref" not in last.text


def test_without_a_user_turn_the_wish_is_one() -> None:
    last = with_tools([{"role": "system", "content": "Be brief."}], [WEATHER])[-1]
    assert last.role == "user"
    assert "get_weather" in last.text


def test_a_picture_stays_beside_the_wish() -> None:
    content = with_tools([ChatMessage("user", (Image("a.png"), "What is this?"))], [WEATHER])[-1].content
    assert isinstance(content, tuple)
    assert content[0] == Image("a.png")
    assert "get_weather" in str(content[-1])


def test_arguments_that_are_no_object_are_told_as_they_are() -> None:
    broken = ChatMessage("assistant", None, (ToolCall("a", "f", "[1"),))
    for tools in ((), [WEATHER]):
        assert ChatMessage("assistant", "Let me ask f ([1).") in with_tools([ChatMessage("user", "Hi"), broken], tools)
