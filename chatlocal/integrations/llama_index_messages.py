"""LlamaIndex messages -> the engine's. It knows no model: what a model cannot take, the engine refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.base.llms.types import CachePoint, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.base.llms.types import ChatMessage as LlamaIndexMessage

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ChatMessage, Image, Part, ToolCall


def to_engine(messages: Sequence[LlamaIndexMessage]) -> tuple[ChatMessage, ...]:
    """The conversation as engine messages; every role of LlamaIndex is known.

    Text blocks of one message are joined with a newline, as `ChatMessage.content` does. UnsupportedInput names an
    audio, video, document or citation block.
    """
    return tuple(_message(message) for message in messages)


def from_engine(messages: Iterable[ChatMessage]) -> list[LlamaIndexMessage]:
    """Messages without pictures as LlamaIndex has them, for a `messages_to_prompt` of the user's."""
    return [
        LlamaIndexMessage(
            role=message.role,
            blocks=[
                *([ThinkingBlock(content=message.reasoning)] if message.reasoning else []),
                TextBlock(text=message.text),
                *(
                    ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
                    for call in message.tool_calls
                ),
            ],
            additional_kwargs={
                name: value for name in ("tool_call_id", "name") if (value := getattr(message, name)) is not None
            },
        )
        for message in messages
    ]


def calls_of(message: LlamaIndexMessage) -> tuple[ToolCall, ...]:
    """The calls of a message: its blocks, else those that other integrations leave in additional_kwargs."""
    blocks = tuple(_call(block) for block in message.blocks if isinstance(block, ToolCallBlock))
    if blocks:
        return blocks
    listed = [_plain(call) for call in message.additional_kwargs.get("tool_calls") or ()]
    return ChatMessage.of({"role": "assistant", "tool_calls": listed}).tool_calls


def _message(message: LlamaIndexMessage) -> ChatMessage:
    texts: list[str] = []
    images: list[Part] = []
    thoughts: list[str] = []
    for block in message.blocks:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ImageBlock():
                images.append(_image(block))
            case ThinkingBlock():
                thoughts.append(block.content or "")
            case ToolCallBlock():
                pass  # below, with the calls that stand elsewhere
            case CachePoint():
                pass  # only a hint to servers, and it has no text
            case _:
                raise UnsupportedInput(
                    f"The {message.role.value} message carries a {type(block).__name__}, which cannot be read here: use"
                    " TextBlock, or put its content into the text."
                )
    extra = message.additional_kwargs
    if broken := [call["raw"] for call in extra.get("invalid_tool_calls") or ()]:
        texts = [*filter(None, texts), *broken]  # the model said so, if not as a call
    text = "\n".join(texts)
    # The role's spelling is read where all front ends read it.
    return ChatMessage.of(
        {
            "role": message.role.value,
            "content": (text, *images) if images else text if texts else None,
            "tool_calls": calls_of(message),
            "tool_call_id": extra.get("tool_call_id"),
            "name": extra.get("name"),
            "reasoning": "".join(thoughts) or None,
        }
    )


def _call(block: ToolCallBlock) -> ToolCall:
    arguments = block.tool_kwargs
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(block.tool_call_id or "", block.tool_name, arguments)


def _plain(call: Any) -> Any:
    """Other integrations leave their client's Pydantic objects here."""
    dump = getattr(call, "model_dump", None)
    return dump() if dump is not None else call


def _image(block: ImageBlock) -> Image:
    if block.url is not None:
        return Image(str(block.url))
    if block.path is not None:
        return Image(str(block.path))
    data = block.image
    if data is None:
        raise UnsupportedInput("An ImageBlock carries neither image, path nor url.")
    # LlamaIndex keeps the bytes of a picture in base64.
    return Image(base64.b64decode(data)) if isinstance(data, bytes) else Image(data.read())
