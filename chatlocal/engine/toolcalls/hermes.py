"""Hermes, Qwen2.5 and Qwen3: each call a JSON object in <tool_call> tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, call_object
from chatlocal.engine.toolcalls.call_object import read_calls
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments_object, as_json

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class Hermes(ToolFormat):
    """Text and calls in any order; the last closing tag may be missing."""

    name = "hermes"
    ends: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")
    marks = (_OPEN, _CLOSE)

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        inside = False
        while mark := (yield from read_text(source, out.text, (_OPEN, _CLOSE) if inside else (_OPEN,), self.ends)):
            inside = mark == _OPEN
            if inside:
                yield from source.skip_space()
                yield from read_calls(source, out, (_CLOSE, _OPEN, *self.ends))
                yield from source.skip_space()

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        return "\n".join(
            f'{_OPEN}\n{{"name": {as_json(call.name)}, "arguments": {arguments_object(call)}}}\n{_CLOSE}'
            for call in calls
        )

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """A call in tags, and more of them on lines of their own."""
        call = f'"\\n" {call_object(grammar, tools, "arguments")} "\\n" {grammar.mark(_CLOSE)}'
        return [Way(_OPEN, grammar.repeated(f"({call})", f'"\\n" {grammar.mark(_OPEN)}'))]


FORMATS = (Hermes(),)
