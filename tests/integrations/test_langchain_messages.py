"""LangChain's messages in all their forms become the engine's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from chatlocal import ChatLocal
from chatlocal.engine import messages as engine
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.integrations.langchain_messages import to_chat_messages
from tests.integrations.chatml_tools import HERMES
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

CALL = {"name": "weather", "args": {"city": "北京"}, "id": "call_1", "type": "tool_call"}
READ_CALL = engine.ToolCall("call_1", "weather", '{"city": "北京"}')


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (HumanMessage("hi"), engine.ChatMessage("user", "hi")),
        (HumanMessage("hi", name="Ann"), engine.ChatMessage("user", "hi", name="Ann")),
        (SystemMessage("Be brief."), engine.ChatMessage("system", "Be brief.")),
        (AIMessage("hello"), engine.ChatMessage("assistant", "hello")),
        (AIMessageChunk("hello"), engine.ChatMessage("assistant", "hello")),
        (AIMessage("", tool_calls=[CALL]), engine.ChatMessage("assistant", "", (READ_CALL,))),
        (ToolMessage("sunny", tool_call_id="call_1"), engine.ChatMessage("tool", "sunny", tool_call_id="call_1")),
        (
            ToolMessage("no such city", tool_call_id="call_1", status="error"),
            engine.ChatMessage("tool", "Error: no such city", tool_call_id="call_1"),
        ),
        (
            ToolMessage([{"type": "text", "text": "sun"}, "ny"], tool_call_id="call_1"),  # type: ignore[list-item]
            engine.ChatMessage("tool", "sunny", tool_call_id="call_1"),
        ),
        (FunctionMessage("sunny", name="weather"), engine.ChatMessage("tool", "sunny", name="weather")),
        (ChatMessage("hi", role="user"), engine.ChatMessage("user", "hi")),
        (ChatMessage("Be brief.", role="developer"), engine.ChatMessage("system", "Be brief.")),
        (HumanMessage([{"type": "text", "text": "a"}, "b"]), engine.ChatMessage("user", "ab")),  # type: ignore[list-item]
        (HumanMessage([]), engine.ChatMessage("user", "")),
        (HumanMessage([{"type": "text-plain", "text": "a note"}]), engine.ChatMessage("user", "a note")),
        (
            AIMessage("42", additional_kwargs={"reasoning_content": "let me think"}),
            engine.ChatMessage("assistant", "42", reasoning="let me think"),
        ),
        (
            AIMessage([{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "42"}]),
            engine.ChatMessage("assistant", "42", reasoning="hm"),
        ),
        (
            AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "42"}]),
            engine.ChatMessage("assistant", "42", reasoning="hm"),
        ),
        (
            AIMessage("", additional_kwargs={"function_call": {"name": "weather", "arguments": '{"city": "北京"}'}}),
            engine.ChatMessage("assistant", "", (engine.ToolCall("", "weather", '{"city": "北京"}'),)),
        ),
    ],
)
def test_one_message(message: BaseMessage, expected: engine.ChatMessage) -> None:
    assert to_chat_messages([message]) == (expected,)


BROKEN = {"name": "weather", "args": '{"city": "Hang', "id": "call_2", "error": "cut", "type": "invalid_tool_call"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            AIMessage("", tool_calls=[CALL], invalid_tool_calls=[BROKEN]),
            engine.ChatMessage("assistant", '{"city": "Hang', (READ_CALL,)),
        ),
        # What looked like a call and has no name is told as text.
        (
            AIMessage("So: ", invalid_tool_calls=[{**BROKEN, "name": None, "id": None, "args": '{"nme": 1}'}]),
            engine.ChatMessage("assistant", 'So: \n{"nme": 1}'),
        ),
        # Calls in content blocks alone, with ids and without.
        (
            AIMessage([{"type": "tool_use", "id": "", "name": name, "input": {}} for name in ("a", "b")]),
            engine.ChatMessage("assistant", "", (engine.ToolCall("", "a", "{}"), engine.ToolCall("", "b", "{}"))),
        ),
        (
            AIMessage([{"type": "tool_call_chunk", "id": "call_1", "name": "a", "args": '{"b', "index": 0}]),
            engine.ChatMessage("assistant", '{"b'),
        ),
        # OpenAI's own shape.
        (
            AIMessage(
                "",
                additional_kwargs={
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"city": "北京"}'},
                        }
                    ]
                },
            ),
            engine.ChatMessage("assistant", "", (READ_CALL,)),
        ),
        # A call in OpenAI's older interface that was cut is told once; a second call stands beside it.
        (
            AIMessage(
                "",
                additional_kwargs={"function_call": {"name": "weather", "arguments": '{"city": "Hang'}},
                invalid_tool_calls=[BROKEN],
            ),
            engine.ChatMessage("assistant", '{"city": "Hang'),
        ),
        (
            AIMessage("", additional_kwargs={"function_call": {"name": "time", "arguments": "{}"}}, tool_calls=[CALL]),
            engine.ChatMessage("assistant", "", (engine.ToolCall("", "time", "{}"), READ_CALL)),
        ),
        (
            ToolMessage(
                [{"type": "text", "text": "no "}, {"type": "text", "text": "city"}],
                tool_call_id="call_1",
                status="error",
                name="weather",
            ),
            engine.ChatMessage("tool", "Error: no city", tool_call_id="call_1", name="weather"),
        ),
    ],
)
def test_one_message_of_a_conversation_with_tools(message: BaseMessage, expected: engine.ChatMessage) -> None:
    assert to_chat_messages([message]) == (expected,)


def test_a_whole_conversation_with_tools_reaches_the_model() -> None:
    written = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    model = ChatLocal(engine=scripted_engine(written, template=HERMES, context_length=4096))
    bound = model.bind_tools([{"name": "weather", "parameters": {"type": "object", "properties": {}}}])
    question = HumanMessage("How is it in Rome?")
    for version in ("v0", "v1"):
        model.output_version = version
        chunks = list(bound.stream([question]))
        for called in (bound.invoke([question]), sum(chunks[1:], start=chunks[0])):
            [call] = called.tool_calls
            bound.invoke([question, called, ToolMessage("25 degrees", tool_call_id=call["id"])])
            prompt = tiny_tokenizer().decode(backend_of(model.engine).requests[-1].prompt_ids)
            assert prompt.index("in Rome?") < prompt.index(written) < prompt.index("25 degrees")
            assert prompt.count(written) == 1


@pytest.mark.parametrize("repeated", [True, False])
def test_anthropics_tool_use_is_one_call(repeated: bool) -> None:
    block = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "北京"}}
    message = AIMessage([{"type": "text", "text": "Let me look."}, block], tool_calls=[CALL] if repeated else [])
    assert to_chat_messages([message]) == (engine.ChatMessage("assistant", "Let me look.", (READ_CALL,)),)


def test_langchains_own_call_blocks_are_one_call() -> None:
    message = AIMessage(content_blocks=[{"type": "text", "text": "Let me look."}, CALL])  # type: ignore[list-item]
    assert to_chat_messages([message]) == (engine.ChatMessage("assistant", "Let me look.", (READ_CALL,)),)


def test_anthropics_results_are_tool_turns_before_the_users() -> None:
    message = HumanMessage(
        [
            {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "sunny"}]},
            {"type": "text", "text": "And now?"},
        ]
    )
    result = engine.ChatMessage("tool", "sunny", tool_call_id="call_1")
    assert to_chat_messages([message]) == (result, engine.ChatMessage("user", "And now?"))
    alone = HumanMessage([{"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}])
    assert to_chat_messages([alone]) == (result,)


def test_two_calls_without_ids_stay_two() -> None:
    calls = [{**CALL, "id": None, "args": {"city": city}} for city in ("Paris", "Rome")]
    (message,) = to_chat_messages([AIMessage("", tool_calls=calls)])
    assert [json.loads(call.arguments)["city"] for call in message.tool_calls] == ["Paris", "Rome"]


def test_a_broken_call_is_told_as_text_unless_a_result_answers_it() -> None:
    called = AIMessage("Let me look.", tool_calls=[CALL], invalid_tool_calls=[BROKEN])
    (message,) = to_chat_messages([called])
    assert message == engine.ChatMessage("assistant", 'Let me look.\n{"city": "Hang', (READ_CALL,))
    (message, _) = to_chat_messages([called, ToolMessage("try again", tool_call_id="call_2", status="error")])
    assert message.tool_calls == (READ_CALL, engine.ToolCall("call_2", "weather", '{"city": "Hang'))


@pytest.mark.parametrize("template", [HERMES, "qwen", None])
def test_the_conversation_goes_on_after_a_broken_call(template: str | None) -> None:
    model = ChatLocal(engine=scripted_engine("hello", template=template, context_length=4096))
    cut = AIMessage("", invalid_tool_calls=[BROKEN])
    tool = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    bound = model.bind_tools([tool], tool_choice="none")
    assert bound.invoke([HumanMessage("And?"), cut, HumanMessage("Well?")]).content == "hello"
    prompt = tiny_tokenizer().decode(backend_of(model.engine).requests[-1].prompt_ids)
    assert prompt.index("And?") < prompt.index('{"city": "Hang') < prompt.index("Well?")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": "data:image/png;base64,AAAA"},
        {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
        {"type": "image", "url": "data:image/png;base64,AAAA"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source_type": "base64", "data": "AAAA", "mime_type": "image/png"},
    ],
)
def test_images_arrive_and_a_text_model_refuses_them(block: dict[str, Any]) -> None:
    message = HumanMessage([{"type": "text", "text": "What is it?"}, block])
    (read,) = to_chat_messages([message])
    assert read.content == ("What is it?", engine.Image("data:image/png;base64,AAAA"))
    with pytest.raises(UnsupportedInput, match="image"):
        ChatLocal(engine=scripted_engine("a cat")).invoke([message])


@pytest.mark.parametrize("kind", ["audio", "video", "file", "input_audio"])
def test_what_cannot_be_read_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UnsupportedInput, match=f"'{kind}'"):
        to_chat_messages([HumanMessage([{"type": kind, "base64": "AAAA"}])])


def test_messages_that_are_none_are_refused() -> None:
    with pytest.raises(UnsupportedInput, match="RemoveMessage"):
        to_chat_messages([RemoveMessage(id="1")])
    with pytest.raises(UnsupportedInput, match="'referee'"):
        to_chat_messages([ChatMessage("hi", role="referee")])
