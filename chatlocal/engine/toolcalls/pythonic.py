"""Lists of Python calls: Llama 3.2 and 4, whose answer is the list, and LFM2, which writes it between marks.

The forms are those of Meta's prompt formats and Liquid AI's chat template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.call_grammar import MOST_CALLS, CallGrammar, Way, literal
from chatlocal.engine.toolcalls.call_list import UNWRITABLE, begins_call_list, read_call_list, written_list
from chatlocal.engine.toolcalls.call_object import read_calls
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.named_arguments import keyword_arguments
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

_OPENINGS = ("<|python_tag|>", "<|python_start|>", "<|tool_call_start|>")
_CLOSINGS = ("<|python_end|>", "<|tool_call_end|>")


class Pythonic(ToolFormat):
    """The answer is a list, or has lists between marks; those may hold JSON objects too."""

    name = "pythonic"
    marks = (*_OPENINGS, *_CLOSINGS)
    unwritable = UNWRITABLE
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

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """A list, which is the answer, or stands between marks where the model begins so."""
        return tuple(self._ways(grammar, tools))

    def _ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Iterator[Way]:
        arguments = {tool.name: keyword_arguments(grammar, tool) for tool in tools}
        calls = (f'{literal(name, "(")} {given} ")"' for name, given in arguments.items())
        others = f"({literal(', ')} {grammar.rule(*calls)}){{0,{MOST_CALLS - 1}}}" if grammar.parallel else ""
        for name, given in arguments.items():
            rest = f'{given} ")" {others} "]"'
            yield Way(f"[{name}(", rest, "start")
            for opening, closing in zip(_OPENINGS, (None, *_CLOSINGS), strict=True):
                if opening in grammar.marks:
                    end = grammar.mark(closing) if closing else ""
                    yield Way(f"{opening}[{name}(", f"{rest} {end}", offered=False)


FORMATS = (Pythonic(),)
