"""Qwen-1's ReAct answers: the published cases, and what a stream must do with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Event, Reasoning, Text
from tests.engine.toolcalls.test_formats import merged

_GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "qwen_react.json").read_text("utf-8"))
CASES = _GOLDEN["parse_cases"]
TOOLS = _GOLDEN["declared_tools_in_parse_cases"]
REACT = toolcalls.get("qwen_react")


def events_of(pieces: list[str], tools: list[str], opened: str = "") -> list[Event]:
    parser = REACT.parser(tools, opened)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return merged([*events, *parser.flush()])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_published_answers(case: dict[str, Any]) -> None:
    expected = case["expected"]
    content, calls, invalid = REACT.parse(case["raw"], TOOLS)
    assert content == expected["content"]
    if expected.get("invalid"):
        assert [(call.name, call.raw) for call in invalid] == [(expected["name"], expected["arguments"])]
        assert calls == []
    else:
        wanted = [] if expected["name"] is None else [(expected["name"], expected["arguments"])]
        assert [(call.name, call.arguments) for call in calls] == wanted
        assert invalid == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_pieces_do_not_matter(case: dict[str, Any]) -> None:
    raw = case["raw"]
    whole = events_of([raw], TOOLS)
    assert events_of(list(raw), TOOLS) == whole
    for place in range(len(raw)):
        assert events_of([raw[:place], raw[place:]], TOOLS) == whole


def test_thoughts_are_reasoning_and_what_follows_a_call_is_left_out() -> None:
    raw = (
        "Thought: I should read the clock.\nAction: clock_now\nAction Input: {}\n"
        'Observation: {"now": "10:00"}\nThought: done\nFinal Answer: It is ten.'
    )
    events = events_of([raw], ["clock_now"])
    assert events[0] == Reasoning("I should read the clock.")
    assert [type(event) for event in events[1:]] == [CallStart, CallDelta]
    assert REACT.parse(raw, ["clock_now"]).content == "I should read the clock."


def test_the_final_answer_loses_its_label() -> None:
    raw = "Thought: I now know the final answer.\nFinal Answer: It is ten."
    assert events_of([raw], ["f"]) == [Reasoning("I now know the final answer."), Text("It is ten.")]
    assert REACT.parse(raw, ["f"]).content == "It is ten."
    assert REACT.parse("Thought: I now know the final answer.\nFinal answer:\n42", ["f"]).content == "42"


@pytest.mark.parametrize(
    "raw",
    [
        'Action: get_w\nAction Input: {"city": "Rome"}',
        'Thought: the doc says:\nObservation: none. I will look.\nAction: get_w\nAction Input: {"city": "Rome"}',
        '**Action**: get_w\n**Action Input**: {"city": "Rome"}\n**Observation**: made up',
        '**Action:** get_w\n**Action Input:** {"city": "Rome"}',
        'action: get_w\naction input:\n```json\n{"city": "Rome"}\n```\nObservation: x',
        'Action : `get_w`\nAction Input : {"city": "Rome"}\nAction: get_w\nAction Input: {"city": "Oslo"}',
    ],
)
def test_calls_in_any_dress(raw: str) -> None:
    _, calls, invalid = REACT.parse(raw, ["get_w"])
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("get_w", {"city": "Rome"})]
    assert invalid == []


def test_an_observation_inside_of_arguments_is_part_of_them() -> None:
    arguments = '{"text": "a\\nObservation: b", "more": "\nObservation: c"}'
    _, calls, _ = REACT.parse(f"Action: f\nAction Input: {arguments}\nObservation: d", ["f"])
    assert json.loads(calls[0].arguments) == {"text": "a\nObservation: b", "more": "\nObservation: c"}


def test_what_is_no_json_is_an_invalid_call_with_its_text() -> None:
    raw = (
        "Thought: search.\nAction: Search\nAction Input: weather today\n**Observation**: it is sunny\n"
        "Final Answer: sunny"
    )
    events = events_of([raw], ["Search"])
    assert events[0] == Reasoning("search.")
    assert isinstance(events[1], CallStart)
    assert events[2] == CallInvalid(0, "weather today", "the action input is no JSON object")
    assert len(events) == 3


def test_a_name_that_no_tool_has_is_text() -> None:
    raw = "Action: dance\nAction Input: {}"
    assert events_of([raw], ["f"]) == [Text(raw)]
    assert REACT.parse(raw, ["f"]) == (raw, [], [])


def test_a_prompt_that_opened_a_thought() -> None:
    events = events_of([" It is warm.\nFinal Answer: 22 degrees"], ["f"], "Thought:")
    assert events == [Reasoning("It is warm."), Text("22 degrees")]


def test_only_what_may_become_a_label_is_held_back() -> None:
    parser = REACT.parser(["f"])
    assert parser.feed("Hello") == [Text("Hello")]
    assert parser.feed(" there.\nAct") == [Text(" there.")]
    assert parser.feed("ually") == [Text("\nActually")]
    assert parser.feed("\nThought: so") == [Reasoning("so")]
    assert parser.feed(" be it") == [Reasoning(" be it")]


@pytest.mark.parametrize(
    ("raw", "over"),
    [("Action: f\nAction Input: {}", True), ("x\nObservation:", True), ("Final Answer: 1\nObservation: ", True)],
)
def test_the_parser_says_when_the_answer_is_over(raw: str, over: bool) -> None:
    parser = REACT.parser(["f"])
    parser.feed("Thought: x\n")
    assert not parser.over
    parser.feed(raw + " ")
    assert parser.over == over
