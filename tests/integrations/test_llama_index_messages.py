"""LlamaIndex messages as the engine reads them."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    CachePoint,
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ChatMessage as EngineMessage
from chatlocal.engine.messages import Image, ToolCall
from chatlocal.integrations.llama_index import LocalLLM
from chatlocal.integrations.llama_index_messages import from_engine, to_engine
from tests.scripted import backend_of, scripted_engine

# The roles of LlamaIndex and the engine's four.
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "function": "tool",
    "tool": "tool",
}

PICTURE = b"\x89PNG\r\n\x1a\n not a picture, but bytes"


def test_every_role_is_known() -> None:
    assert {role.value for role in MessageRole} == set(ROLES)


@pytest.mark.parametrize(("role", "expected"), ROLES.items())
def test_roles(role: str, expected: str) -> None:
    assert to_engine([ChatMessage(role=role, content="text")]) == (EngineMessage(expected, "text"),)


def test_content_may_be_missing_or_empty() -> None:
    assert [
        message.text for message in to_engine([ChatMessage(role="user"), ChatMessage(role="user", content="")])
    ] == [
        "",
        "",
    ]


def test_a_past_tool_call_and_its_result() -> None:
    call = ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={"a": 1, "名": "é"})
    history = [
        ChatMessage(role="assistant", blocks=[TextBlock(text=""), call]),
        ChatMessage(role="tool", content="3", additional_kwargs={"tool_call_id": "c1", "name": "add"}),
    ]
    expected_call = ToolCall("c1", "add", '{"a": 1, "名": "é"}')
    assert to_engine(history) == (
        EngineMessage("assistant", "", (expected_call,)),
        EngineMessage("tool", "3", tool_call_id="c1", name="add"),
    )


@pytest.mark.parametrize("as_object", [False, True])
def test_calls_in_openai_shape(as_object: bool) -> None:
    call: Any = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    stored = SimpleNamespace(model_dump=lambda: call) if as_object else call
    message = ChatMessage(role="assistant", content="x")
    message.additional_kwargs["tool_calls"] = [stored]
    assert to_engine([message])[0].tool_calls == (ToolCall("c1", "add", '{"a": 1}'),)


def test_a_call_that_is_told_twice_is_one() -> None:
    """Our own answers have it as a block and in OpenAI's shape."""
    block = ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={"a": 1})
    plain = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    message = ChatMessage(role="assistant", blocks=[block], additional_kwargs={"tool_calls": [plain]})
    assert to_engine([message])[0].tool_calls == (ToolCall("c1", "add", '{"a": 1}'),)


def test_a_call_that_could_not_be_read_is_text() -> None:
    broken = {"id": "c1", "name": "add", "raw": '{"a": ', "error": "cut off"}
    said = {"invalid_tool_calls": [broken]}
    assert to_engine([ChatMessage(role="assistant", content="", additional_kwargs=said)])[0].content == '{"a": '
    assert to_engine([ChatMessage(role="assistant", content="Hm.", additional_kwargs=said)])[0].text == 'Hm.\n{"a": '


def test_calls_and_results_come_back() -> None:
    messages = [
        ChatMessage(
            role="assistant",
            blocks=[
                ThinkingBlock(content="hm"),
                TextBlock(text="Wait."),
                ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs='{"a": 1}'),
            ],
        ),
        ChatMessage(role="tool", content="3", additional_kwargs={"tool_call_id": "c1", "name": "add"}),
    ]
    assert from_engine(to_engine(messages)) == messages


def test_thinking_is_kept_apart_and_cache_points_are_hints() -> None:
    blocks = [ThinkingBlock(content="hm"), TextBlock(text="yes"), CachePoint(cache_control={"type": "ephemeral"})]
    assert to_engine([ChatMessage(role="assistant", blocks=blocks)]) == (
        EngineMessage("assistant", "yes", reasoning="hm"),
    )


def test_pictures_are_handed_on(tmp_path: Any) -> None:
    path = tmp_path / "dog.png"
    path.write_bytes(PICTURE)
    blocks = [
        ImageBlock(image=PICTURE),
        ImageBlock(path=path),
        ImageBlock(url="https://example.org/dog.png"),
    ]
    (message,) = to_engine([ChatMessage(role="user", blocks=[TextBlock(text="See"), *blocks])])
    assert message.content == ("See", Image(PICTURE), Image(str(path)), Image("https://example.org/dog.png"))
    assert base64.b64decode(blocks[0].image) == PICTURE  # what the core made of the bytes


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (ImageBlock(image=PICTURE), "image"),
        (AudioBlock(audio=b"RIFF....WAVE", format="wav"), "AudioBlock"),
        (VideoBlock(url="https://example.org/dog.mp4"), "VideoBlock"),
        (DocumentBlock(data=b"%PDF-1.4", document_mimetype="application/pdf"), "DocumentBlock"),
        (CitableBlock(title="t", source="s", content="c"), "CitableBlock"),
    ],
)
def test_what_a_text_model_cannot_read_is_refused_before_any_work(block: Any, name: str) -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    message = ChatMessage(role="user", blocks=[TextBlock(text="See"), block])
    for call in (llm.chat, llm.stream_chat):
        with pytest.raises(UnsupportedInput, match=name):
            call([message])
    assert backend_of(llm.engine).requests == []


def test_pictures_are_not_dropped_where_the_user_writes_the_prompt() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"), messages_to_prompt=lambda messages: "prompt")
    with pytest.raises(UnsupportedInput, match="image"):
        llm.chat([ChatMessage(role="user", blocks=[TextBlock(text="See"), ImageBlock(image=PICTURE)])])


def test_an_image_block_without_a_picture() -> None:
    with pytest.raises(UnsupportedInput, match="ImageBlock"):
        to_engine([ChatMessage(role="user", blocks=[ImageBlock()])])


def test_text_messages_come_back() -> None:
    messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Hello")]
    assert from_engine(to_engine(messages)) == messages
