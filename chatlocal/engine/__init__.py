"""The engine: torch and transformers, no framework. Messages in, events out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlocal.engine.engine import Engine as Engine
    from chatlocal.engine.events import CallDelta as CallDelta
    from chatlocal.engine.events import CallInvalid as CallInvalid
    from chatlocal.engine.events import CallStart as CallStart
    from chatlocal.engine.events import Event as Event
    from chatlocal.engine.events import Finish as Finish
    from chatlocal.engine.events import Reasoning as Reasoning
    from chatlocal.engine.events import Reply as Reply
    from chatlocal.engine.events import Text as Text
    from chatlocal.engine.events import Usage as Usage
    from chatlocal.engine.events import collect as collect
    from chatlocal.engine.messages import ChatMessage as ChatMessage
    from chatlocal.engine.messages import Image as Image
    from chatlocal.engine.messages import InvalidCall as InvalidCall
    from chatlocal.engine.messages import Sampling as Sampling
    from chatlocal.engine.messages import Tool as Tool
    from chatlocal.engine.messages import ToolCall as ToolCall

_HOMES = {
    "Engine": "chatlocal.engine.engine",
    **dict.fromkeys(
        ("CallDelta", "CallInvalid", "CallStart", "Event", "Finish", "Reasoning", "Reply", "Text", "Usage", "collect"),
        "chatlocal.engine.events",
    ),
    **dict.fromkeys(
        ("ChatMessage", "Image", "InvalidCall", "Sampling", "Tool", "ToolCall"), "chatlocal.engine.messages"
    ),
}

__all__ = [
    "CallDelta",
    "CallInvalid",
    "CallStart",
    "ChatMessage",
    "Engine",
    "Event",
    "Finish",
    "Image",
    "InvalidCall",
    "Reasoning",
    "Reply",
    "Sampling",
    "Text",
    "Tool",
    "ToolCall",
    "Usage",
    "collect",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
