"""LangChain messages -> the engine's messages.

Reads text, OpenAI's, Anthropic's and LangChain's own (v1) content blocks. What cannot be read is refused by name; only
what was encrypted for another model (redacted thinking) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages import ChatMessage as RoleMessage

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ChatMessage, Image, Part, ToolCall


def to_chat_messages(messages: Iterable[BaseMessage]) -> tuple[ChatMessage, ...]:
    """The conversation for the engine. UnsupportedInput names a message or content block that it cannot take."""
    messages = list(messages)
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    return tuple(turn for message in messages for turn in _turns(message, answered))


def _turns(message: BaseMessage, answered: set[str]) -> list[ChatMessage]:
    blocks = _read(message.content)
    match message:
        case SystemMessage():
            return [ChatMessage("system", blocks.content, name=message.name)]
        case HumanMessage():
            # Anthropic's format carries tool results inside the user's turn.
            spoken = (
                [ChatMessage("user", blocks.content, name=message.name)] if blocks.parts or not blocks.results else []
            )
            return [*blocks.results, *spoken]
        case AIMessage():
            return [_assistant(message, blocks, answered)]
        case ToolMessage():
            return [
                ChatMessage("tool", _outcome(message, blocks), tool_call_id=message.tool_call_id, name=message.name)
            ]
        case FunctionMessage():
            return [ChatMessage("tool", blocks.content, name=message.name)]
        case RoleMessage():
            return [ChatMessage.of({"role": message.role, "content": blocks.content, "name": message.name})]
    raise UnsupportedInput(f"A {type(message).__name__} cannot be part of a conversation with a model.")


def _assistant(message: AIMessage, blocks: _Blocks, answered: set[str]) -> ChatMessage:
    calls = [_tool_call(call) for call in message.tool_calls]
    calls += [_tool_call(broken) for broken in message.invalid_tool_calls]
    # Content blocks repeat what tool_calls says, or say it alone.
    seen = {call.id for call in calls}
    calls += [call for call in blocks.calls if call.id not in seen and (call.id or not seen)]
    legacy = message.additional_kwargs.get("function_call")
    if legacy and legacy["name"] not in {broken["name"] for broken in message.invalid_tool_calls}:
        calls.insert(0, ToolCall("", legacy["name"], legacy["arguments"]))
    # Prompt formats have no place for broken calls, so they are told as the text that they are; but a result that
    # answers one needs its call.
    whole = tuple(call for call in calls if call.name and (_is_object(call.arguments) or call.id in answered))
    reasoning = message.additional_kwargs.get("reasoning_content") or "".join(blocks.reasoning)
    return ChatMessage(
        "assistant",
        _with_text(blocks.content, [call.arguments for call in calls if call not in whole]),
        whole,
        name=message.name,
        reasoning=reasoning or None,
    )


def _is_object(arguments: str) -> bool:
    try:
        return not arguments or isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _with_text(content: str | tuple[Part, ...], texts: Sequence[str]) -> str | tuple[Part, ...]:
    if not isinstance(content, str):
        return (*content, *texts)
    return "\n".join(text for text in (content, *texts) if text)


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call.get("args", call.get("input"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(call.get("id") or "", call.get("name") or "", text)


def _outcome(message: ToolMessage, blocks: _Blocks) -> str | tuple[Part, ...]:
    """The result, told as an error where the tool failed: prompt formats have no other place for the status."""
    content = blocks.content
    if message.status != "error":
        return content
    return f"Error: {content}" if isinstance(content, str) else ("Error: ", *content)


@dataclass(slots=True)
class _Blocks:
    """One message's content, sorted."""

    parts: list[Part] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    results: list[ChatMessage] = field(default_factory=list)

    @property
    def content(self) -> str | tuple[Part, ...]:
        if any(isinstance(part, Image) for part in self.parts):
            return tuple(self.parts)
        return "".join(part for part in self.parts if isinstance(part, str))


def _read(content: str | Sequence[str | dict[Any, Any]]) -> _Blocks:
    blocks = _Blocks()
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            blocks.parts.append(block)
        else:
            _sort(block, blocks)
    return blocks


def _sort(block: Mapping[str, Any], blocks: _Blocks) -> None:
    kind = block.get("type", "text" if "text" in block else None)
    match kind:
        case "text" | "text-plain" if isinstance(block.get("text"), str):
            blocks.parts.append(block["text"])
        case "refusal":
            blocks.parts.append(block["refusal"])
        case "image" | "image_url":
            blocks.parts.append(_image(block))
        case "thinking":
            blocks.reasoning.append(block["thinking"])
        case "reasoning":
            blocks.reasoning.append(block.get("reasoning", ""))
        case "redacted_thinking":
            pass
        case "tool_use" | "tool_call" | "tool_call_chunk" | "invalid_tool_call":
            blocks.calls.append(_tool_call(block))
        case "tool_result":
            result = _read(block.get("content") or "").content
            blocks.results.append(ChatMessage("tool", result, tool_call_id=block.get("tool_use_id")))
        case _:
            raise UnsupportedInput(
                f"Content blocks of type {kind!r} cannot be read here: use text, or an image for a model that takes"
                " images."
            )


def _image(block: Mapping[str, Any]) -> Image:
    """OpenAI's image_url, Anthropic's source, LangChain's url or base64 (its older form says data)."""
    source = block.get("source") or block.get("image_url") or block
    if isinstance(source, str):
        return Image(source)
    data = source.get("base64") or source.get("data")
    if isinstance(data, str):
        return Image(f"data:{source.get('mime_type') or source.get('media_type') or 'image/png'};base64,{data}")
    if isinstance(source.get("url"), str):
        return Image(source["url"])
    raise UnsupportedInput(f"An image needs a url or base64 data, got the keys {sorted(block)}.")
