"""Continuing an unfinished assistant turn: the prompt ends where the text of the last message ends.

The place is found by a mark behind that text, so it is the right one when the same text stands earlier too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from chatlocal.engine.errors import TemplateError, UnsupportedInput
from chatlocal.engine.families.prompt import Part, Text
from chatlocal.engine.messages import ChatMessage

_OPEN_THINKING = re.compile(r"<think>(?!.*</think>).*\Z", re.DOTALL)


def open_last(turns: Sequence[ChatMessage], *others: str) -> tuple[tuple[ChatMessage, ...], str]:
    """The turns with a mark behind the text of the last one, and the mark: a character that stands nowhere else.

    `others` are texts that the prompt will hold besides the turns. UnsupportedInput for another's turn.
    """
    last = turns[-1]
    if last.role != "assistant" or last.tool_calls:
        what = f"{last.role} message" if last.role != "assistant" else "message with tool calls"
        raise UnsupportedInput(
            f"continue_final_message continues an assistant's text, and the last message is a {what}: leave the option"
            " out, or end with the assistant message to go on with."
        )
    used = {*"".join(others), *"".join(map(_everything, turns))}
    mark = next((char for char in map(chr, range(0xE000, 0xF900)) if char not in used), None)
    if mark is None:
        raise UnsupportedInput(
            "The messages use every character from U+E000 to U+F8FF, and continue_final_message needs one for itself:"
            " leave some out."
        )
    # The space shows whether the format trims texts: then it trims this one too.
    return (*turns[:-1], replace(last, content=f"{last.text}{mark} ")), mark


def up_to_mark(parts: Iterable[Part], mark: str) -> tuple[Part, ...]:
    """The parts up to the mark, or the last of several. TemplateError without one: the last message is not written."""
    parts = tuple(parts)
    for place, part in reversed(list(enumerate(parts))):
        before, found, after = part.text.rpartition(mark)
        if found and isinstance(part, Text):
            return *parts[:place], replace(part, text=before if after.startswith(" ") else before.rstrip())
    raise TemplateError(
        "The prompt format leaves the last message out, so it cannot be continued: leave continue_final_message out."
    )


def open_thinking(text: str) -> str:
    """The part of a text that is to be continued from a <think> on that is still open, "" when there is none."""
    found = _OPEN_THINKING.search(text)
    return found[0] if found else ""


def _everything(turn: ChatMessage) -> str:
    calls = (text for call in turn.tool_calls for text in (call.id, call.name, call.arguments))
    return "".join((turn.text, turn.reasoning or "", turn.name or "", turn.tool_call_id or "", *calls))
