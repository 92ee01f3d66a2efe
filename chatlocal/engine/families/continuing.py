"""Continuing an unfinished assistant turn: the prompt ends where the text of the last message ends.

The place is found by a mark behind that text, so it is the right one when the same text stands earlier too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from chatlocal.engine.errors import TemplateError, UnsupportedInput
from chatlocal.engine.families.prompt import Part, Text
from chatlocal.engine.messages import ChatMessage

_OPEN_THINKING = re.compile(r"<think>(?!.*</think>).*\Z", re.DOTALL)


def open_last(turns: Sequence[ChatMessage]) -> tuple[tuple[ChatMessage, ...], str]:
    """The turns with a mark behind the text of the last one, and the mark. UnsupportedInput for another's turn."""
    last = turns[-1]
    if last.role != "assistant" or last.tool_calls:
        what = f"{last.role} message" if last.role != "assistant" else "message with tool calls"
        raise UnsupportedInput(
            f"continue_final_message continues an assistant's text, and the last message is a {what}: leave the option"
            " out, or end with the assistant message to go on with."
        )
    everything = "".join(turn.text + (turn.reasoning or "") for turn in turns)
    mark = next(char for char in map(chr, range(0xE000, 0xF900)) if char not in everything)
    # The space shows whether the format trims texts: then it trims this one too.
    return (*turns[:-1], replace(last, content=f"{last.text}{mark} ")), mark


def up_to_mark(parts: Iterable[Part], mark: str) -> Iterator[Part]:
    """The parts up to the mark. TemplateError when the mark is not there: then the last message is not written."""
    for part in parts:
        before, found, after = part.text.partition(mark)
        if found and isinstance(part, Text):
            yield replace(part, text=before if after.startswith(" ") else before.rstrip())
            return
        yield part
    raise TemplateError("The prompt format leaves the last message out, so it cannot be continued.")


def open_thinking(text: str) -> str:
    """The part of a text that is to be continued from a <think> on that is still open, "" when there is none."""
    found = _OPEN_THINKING.search(text)
    return found[0] if found else ""
