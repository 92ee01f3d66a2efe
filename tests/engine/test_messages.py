"""What goes into the engine: dicts in OpenAI's shape, and values that cannot be meant."""

from __future__ import annotations

import math
from typing import Any

import pytest

from chatlocal.engine.errors import ChatLocalError, UnsupportedInput
from chatlocal.engine.messages import ChatMessage, Image, Sampling, Tool, ToolCall, read_messages, read_tools


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("user", "user"),
        ("human", "user"),
        ("developer", "system"),
        ("system", "system"),
        ("Assistant", "assistant"),
        ("model", "assistant"),
        ("function", "tool"),
        ("observation", "tool"),
        ("tool", "tool"),
    ],
)
def test_roles_by_their_other_names(name: str, role: str) -> None:
    assert ChatMessage.of({"role": name, "content": "x"}).role == role


@pytest.mark.parametrize("role", ["narrator", "", None, 3])
def test_an_unknown_role_is_refused_by_name(role: Any) -> None:
    with pytest.raises(UnsupportedInput, match=repr(role)):
        ChatMessage.of({"role": role, "content": "x"})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        (["a", "b"], "ab"),
    ],
)
def test_the_text_of_a_message(content: Any, text: str) -> None:
    assert ChatMessage.of({"role": "user", "content": content}).text == text


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "image_url", "image_url": "data:image/png;base64,AA=="},
    ],
)
def test_an_image_is_kept_and_has_no_text(part: dict[str, Any]) -> None:
    message = ChatMessage.of({"role": "user", "content": [{"type": "text", "text": "see"}, part]})
    assert message.content == ("see", Image("data:image/png;base64,AA=="))
    with pytest.raises(UnsupportedInput, match="image"):
        _ = message.text


@pytest.mark.parametrize("part", [{"type": "audio"}, {"type": "text"}, 3, {"type": "image_url"}])
def test_a_part_that_cannot_be_read_is_refused(part: Any) -> None:
    with pytest.raises(UnsupportedInput, match="part"):
        ChatMessage.of({"role": "user", "content": [part]})


def test_content_that_is_no_content() -> None:
    with pytest.raises(UnsupportedInput, match="int"):
        ChatMessage.of({"role": "user", "content": 3})


def test_tool_calls_keep_the_text_of_their_arguments() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"b":1,  "a":2}'}}
    given = {"id": "c2", "function": {"name": "g", "arguments": {"名": "x"}}}
    message = ChatMessage.of({"role": "assistant", "content": None, "tool_calls": [call, given]})
    assert message.tool_calls == (ToolCall("c1", "f", '{"b":1,  "a":2}'), ToolCall("c2", "g", '{"名": "x"}'))


def test_tools_in_both_shapes() -> None:
    function = {"name": "f", "description": "does f", "parameters": {"type": "object", "properties": {"x": {}}}}
    wrapped, bare, least = read_tools([{"type": "function", "function": function}, function, {"name": "g"}])
    assert wrapped == bare == Tool("f", "does f", function["parameters"])
    assert least == Tool("g", "", {"type": "object", "properties": {}})
    assert read_tools(None) == ()
    with pytest.raises(UnsupportedInput, match="name"):
        Tool.of({"type": "function", "function": {}})


def test_no_messages_are_refused() -> None:
    with pytest.raises(UnsupportedInput, match="at least one"):
        read_messages([])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 1.5),
        ("top_k", -1),
        ("top_k", 2.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("max_tokens", 0),
        ("max_tokens", 3.5),
        ("seed", "one"),
        ("logprobs", -1),
        ("stop", ("",)),
        ("stop", (3,)),
    ],
)
def test_sampling_refuses_what_cannot_be_meant(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedInput, match=name) as caught:
        Sampling(**{name: value})
    assert isinstance(caught.value, ChatLocalError)


def test_sampling_takes_one_stop_or_many() -> None:
    assert Sampling(stop="END").stop == ("END",)
    assert Sampling(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize("call", [3, "f", None, {"function": 1}])
def test_a_tool_call_that_is_none_is_refused(call: Any) -> None:
    with pytest.raises(UnsupportedInput, match="tool call needs"):
        ChatMessage.of({"role": "assistant", "content": None, "tool_calls": [call]})


def test_stops_that_are_no_texts_are_refused() -> None:
    with pytest.raises(UnsupportedInput, match="stop takes a text or a list"):
        Sampling(stop=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("messages", ["hi", None, 5, {"role": "user", "content": "hi"}, [5], ["hi"], [("user", "hi")]])
def test_what_is_no_conversation_is_refused(messages: Any) -> None:
    with pytest.raises(UnsupportedInput, match=r"[Mm]essage"):
        read_messages(messages)
