"""Lists of Python calls: Llama 3.2 and 4, whose answer is the list, and LFM2, which writes it between marks.

The forms are those of Meta's prompt formats and Liquid AI's chat template.
"""

from __future__ import annotations

from collections.abc import Iterable

from chatlocal.engine.messages import ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.call_list import begins_call_list, read_call_list, written_list
from chatlocal.engine.toolcalls.call_object import read_calls
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

_OPENINGS = ("<|python_tag|>", "<|python_start|>", "<|tool_call_start|>")
_CLOSINGS = ("<|python_end|>", "<|tool_call_end|>")


class Pythonic(ToolFormat):
    """The answer is a list, or has lists between marks; those may hold JSON objects too."""

    name = "pythonic"
    ends = ("<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|im_end|>")

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        marks = (*_OPENINGS, *_CLOSINGS)
        yield from source.skip_space()
        if (yield from begins_call_list(source, out)):
            yield from read_call_list(source, out, (*marks, *self.ends))
        while mark := (yield from read_text(source, out.text, marks, self.ends)):
            if mark in _OPENINGS:
                yield from source.skip_space()
                if (yield from self._holds_objects(source)):
                    yield from read_calls(source, out, (*marks, *self.ends))
                else:
                    yield from read_call_list(source, out, (*marks, *self.ends))
                yield from source.skip_space()

    def _holds_objects(self, source: Source) -> Reading[bool]:
        source.keep()
        yield from source.skip("[")
        yield from source.skip_space()
        holds = yield from source.begins_with("{")
        source.rewind()
        return holds

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        calls = tuple(calls)
        return written_list(calls, self.name) if calls else ""


FORMATS = (Pythonic(),)
