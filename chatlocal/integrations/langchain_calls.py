"""Arguments of calls in LangChain's messages: reading them, and keeping broken ones from being read."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk

INVALID_CALLS = "invalid_tool_calls"
"""Where in response_metadata calls stand that could not be read: sums of chunks keep neither their errors nor where
their text ends."""

# Whatever is open in a JSON text, one of these ends it in a way that is wrong: inside of a string, behind a backslash
# there, or neither.
_ENDINGS = tuple(quotes + closing for quotes, closing in product(("", '"', '""'), ("}", "]")))


def spoiled(arguments: str) -> str:
    """Arguments that were cut or broken, with an ending by which langchain_core sees it.

    By itself it completes what was cut, so that a call to weather("Hang") would be made.
    """
    return next(text for text in (arguments, *(arguments + ending for ending in _ENDINGS)) if not _is_call(text))


def arguments_text(message: str | BaseMessage) -> str:
    """The arguments of the one call of a message as JSON text, or of the piece of it in a chunk; "" without a call."""
    if isinstance(message, str):
        return message
    broken: list[Any] = message.response_metadata.get(INVALID_CALLS) or []
    if isinstance(message, AIMessageChunk) and message.chunk_position != "last":
        # The ending of a broken call is ours, and what was written has been seen before it.
        return "" if broken else "".join(piece["args"] or "" for piece in message.tool_call_chunks)
    for call in getattr(message, "tool_calls", ()):
        return json.dumps(call["args"], ensure_ascii=False)
    return broken[0]["args"] or "" if broken else ""


def _is_call(arguments: str) -> bool:
    """Whether langchain_core takes this for the arguments of a call."""
    return bool(AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="f", args=arguments)]).tool_calls)
