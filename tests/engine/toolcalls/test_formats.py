"""Published outputs of every format, read whole and cut into pieces in every way."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ToolCall
from tests.engine.toolcalls.answers import LOSSLESS, check
from tests.engine.toolcalls.reading import events_of, merged, pieces

__all__ = ["merged"]

_GOLDEN = Path(__file__).parents[2] / "golden" / "toolcalls.json"
CASES = json.loads(_GOLDEN.read_text("utf-8"))
NAMES = toolcalls.names()
_SHORT = 150


def test_every_format_is_there() -> None:
    assert set(LOSSLESS) | {"qwen_react"} <= set(NAMES)
    assert {case["format"] for case in CASES} <= set(NAMES)


def test_an_unknown_format_is_told_with_near_names() -> None:
    with pytest.raises(KeyError, match="deepseek_v3"):
        toolcalls.get("deepseek_v4")


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
    format, raw = case["format"], case["raw"]
    whole = events_of(format, [raw])
    check(whole)
    assert events_of(format, list(raw)) == whole
    for place in range(len(raw)):
        assert events_of(format, pieces(raw, [place])) == whole
    if len(raw) > _SHORT:
        rng = random.Random(0)
        for _ in range(500):
            cuts = [rng.randrange(len(raw) + 1) for _ in range(rng.randrange(2, 12))]
            assert events_of(format, pieces(raw, cuts)) == whole


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


@pytest.mark.parametrize("name", NAMES)
def test_arguments_that_are_no_object_are_not_written(name: str) -> None:
    for arguments in ("[1]", "{", '{"a": NaN}'):
        with pytest.raises(UnsupportedInput, match="no JSON object"):
            toolcalls.get(name).dump([ToolCall("", "search", arguments)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_is_read_is_let_go(case: dict[str, Any]) -> None:
    """A long answer does not pile up: nothing asks for raw text any more when a call is over."""
    parser = toolcalls.get(case["format"]).parser()
    parser.feed(case["raw"])
    parser.flush()
    assert parser._source._kept == []


@pytest.mark.parametrize("name", LOSSLESS)
def test_no_calls_are_written_as_nothing(name: str) -> None:
    assert toolcalls.get(name).dump([]) == ""


@pytest.mark.parametrize("name", ["qwen3_coder", "llama3", "pythonic", "chatglm3", "glm4", "glm4.5", "deepseek_v3"])
def test_names_that_a_format_cannot_write_are_told(name: str) -> None:
    for function in ("", "two words", "line\nend"):
        with pytest.raises(UnsupportedInput, match="plain name"):
            toolcalls.get(name).dump([ToolCall("", function, "{}")])


def test_calls_have_ids_of_their_own() -> None:
    raw = '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abc"}, {"name": "f", "arguments": {}, "id": "abc"}]'
    ids = [call.id for call in toolcalls.get("mistral").parse(raw).calls]
    assert ids[0] == "abc"
    assert len(set(ids)) == 2
