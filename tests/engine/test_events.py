"""Folding events into a reply."""

from __future__ import annotations

import pytest

from chatlocal.engine.events import (
    CallDelta,
    CallInvalid,
    CallStart,
    Event,
    Finish,
    Reasoning,
    Text,
    Usage,
    collect,
)
from chatlocal.engine.messages import InvalidCall, ToolCall

FINISH = Finish("stop", Usage(3, 4))


def test_pieces_are_joined_and_calls_keep_their_order() -> None:
    events: list[Event] = [
        Reasoning("hm"),
        Text("a"),
        CallStart(1, "id1", "g"),
        CallStart(0, "id0", "f"),
        CallDelta(0, '{"x"'),
        CallDelta(1, "{}"),
        CallDelta(0, ": 1}"),
        Text("b"),
        FINISH,
    ]
    reply = collect(events)
    assert reply.message.role == "assistant"
    assert reply.message.content == "ab"
    assert reply.message.reasoning == "hm"
    assert reply.message.tool_calls == (ToolCall("id0", "f", '{"x": 1}'), ToolCall("id1", "g", "{}"))
    assert reply.invalid_calls == ()
    assert reply.finish is FINISH
    assert reply.finish.usage.total == 7


def test_a_call_that_turns_out_broken_is_kept_as_it_was() -> None:
    reply = collect([CallStart(0, "id0", "f"), CallDelta(0, '{"x'), CallInvalid(0, 'f {"x', "cut off"), FINISH])
    assert reply.message.tool_calls == ()
    assert reply.invalid_calls == (InvalidCall('f {"x', "cut off", "f"),)


def test_an_answer_of_nothing_is_empty_text() -> None:
    reply = collect([FINISH])
    assert reply.message.content == ""
    assert reply.message.reasoning is None


def test_a_stream_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="Finish"):
        collect([Text("a")])
