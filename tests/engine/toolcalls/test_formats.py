"""Published outputs of every format, read whole and cut into pieces in every way."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.events import CallDelta, Event, Reasoning, Text
from chatlocal.engine.messages import ToolCall

_GOLDEN = Path(__file__).parents[2] / "golden" / "toolcalls.json"
CASES = [case for case in json.loads(_GOLDEN.read_text("utf-8")) if case["format"] in toolcalls.names()]
NAMES = toolcalls.names()


def merged(events: list[Event]) -> list[Event]:
    """Events with neighbours of one kind as one: what is left does not depend on the pieces."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Text | Reasoning) and type(last) is type(event):
            out[-1] = type(event)(last.text + event.text)
        elif isinstance(event, CallDelta) and isinstance(last, CallDelta) and last.index == event.index:
            out[-1] = CallDelta(event.index, last.arguments + event.arguments)
        else:
            out.append(event)
    return out


def events_of(format: str, pieces: list[str]) -> list[Event]:
    parser = toolcalls.get(format).parser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return merged([*events, *parser.flush()])


def pieces(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_published_outputs(case: dict[str, Any]) -> None:
    expected = case["expected"]
    content, calls, invalid = toolcalls.get(case["format"]).parse(case["raw"])
    assert content == expected["content"]
    found = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls]
    assert found == expected["tool_calls"]
    assert len(invalid) == expected.get("invalid_calls", 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_pieces_do_not_matter(case: dict[str, Any]) -> None:
    raw = case["raw"]
    whole = events_of(case["format"], [raw])
    assert events_of(case["format"], list(raw)) == whole
    for place in range(len(raw)):
        assert events_of(case["format"], pieces(raw, [place])) == whole
    rng = random.Random(0)
    for _ in range(50):
        assert events_of(case["format"], pieces(raw, [rng.randrange(len(raw) + 1) for _ in range(4)])) == whole


ARGUMENTS = [
    {},
    {"city": "Paris"},
    {"text": 'x </tool_call> "y" \\ \n\t 杭州 \u2028', "n": [1, 2.5, -3, None, True, {"deep": {"er": "]}"}}]},
    {"empty": "", "object": {}, "list": [], "false": False, "number": 1e20},
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_what_is_written_is_read_back(name: str, count: int, arguments: dict[str, Any]) -> None:
    format = toolcalls.get(name)
    calls = [ToolCall(f"abcdefgh{place}", "search", json.dumps(arguments)) for place in range(count)]
    if name == "qwen_react" and count > 1:
        with pytest.raises(UnsupportedInput, match="one call"):
            format.dump(calls)
        return
    content, read, invalid = format.parse(format.dump(calls), ["search"])
    assert (content, invalid) == ("", [])
    assert [(call.name, json.loads(call.arguments)) for call in read] == [("search", arguments)] * count
