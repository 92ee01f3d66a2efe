"""Broken arguments stay broken, wherever they were cut, and whatever langchain_core completes by itself."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

from chatlocal.integrations.langchain_calls import arguments_text, spoiled

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def chunk(arguments: str, **fields: Any) -> AIMessageChunk:
    piece = tool_call_chunk(name="f", args=arguments, id="1", index=0)
    return AIMessageChunk(content="", tool_call_chunks=[piece], **fields)


@given(st.data())
def test_cut_arguments_are_no_call(data: st.DataObject) -> None:
    text = json.dumps(data.draw(st.dictionaries(st.text(), VALUES, max_size=3)), ensure_ascii=data.draw(st.booleans()))
    written = text[: data.draw(st.integers(0, len(text)))]
    ending = spoiled(written)
    assert ending.startswith(written)
    assert len(ending) <= len(written) + 3
    message = chunk(ending)
    assert (message.tool_calls, len(message.invalid_tool_calls)) == ([], 1)


@given(st.text(alphabet='{}[]":,\\ \nab1'))
def test_no_text_becomes_a_call(written: str) -> None:
    message = chunk(spoiled(written))
    assert (message.tool_calls, len(message.invalid_tool_calls)) == ([], 1)


def test_the_arguments_of_a_message_are_json_text() -> None:
    call = {"name": "f", "args": {"city": "杭州"}, "id": "1"}
    assert arguments_text(AIMessage("", tool_calls=[call])) == '{"city": "杭州"}'
    assert arguments_text(chunk('{"ci')) == '{"ci'
    assert arguments_text(chunk('{"city": 1}', chunk_position="last")) == '{"city": 1}'
    told = {"invalid_tool_calls": [{"name": "f", "args": '{"ci', "id": "1", "error": "cut"}]}
    assert arguments_text(chunk('"}', response_metadata=told)) == ""  # the ending
    assert arguments_text(chunk('{"ci"}', response_metadata=told, chunk_position="last")) == '{"ci'
    assert arguments_text(AIMessage("I will not.")) == ""
    assert arguments_text('{"city": 1}') == '{"city": 1}'
