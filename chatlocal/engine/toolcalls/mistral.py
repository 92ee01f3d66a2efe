"""Mistral: [TOOL_CALLS] before a JSON list (versions 2 to 7), or before a name, [ARGS] and a JSON object (from 11).

The forms are those of mistral-common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, call_object, literal
from chatlocal.engine.toolcalls.call_object import read_calls
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.json_arguments import read_arguments
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments_object, as_json, check_name

_CALLS, _ARGUMENTS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class Mistral(ToolFormat):
    """Text and calls in any order. Ids are kept where they are written, behind the arguments too."""

    name = "mistral"
    ends = ("</s>",)
    marks = (_CALLS, _ARGUMENTS, _ID)
    thinking = (("[THINK]", "[/THINK]"), ("<think>", "</think>"))

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        while (yield from read_text(source, out.text, (_CALLS,), self.ends)):
            yield from source.skip_space()
            if (yield from source.next_of(("[", "{"))):
                yield from read_calls(source, out, (_CALLS, *self.ends), late_ids=True)
            else:
                yield from self._named(source, out)

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them, as a list; an id that is not empty with them."""
        written = ", ".join(_written(call) for call in calls)
        return f"{_CALLS}[{written}]" if written else ""

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """A name and its arguments where the vocabulary has a token between the two, a list where it has none."""
        if _ARGUMENTS in grammar.marks:
            for tool in tools:
                check_name(tool.name, ("[", "{"), self.name)
            call = grammar.rule(
                *(f"{literal(tool.name)} {grammar.mark(_ARGUMENTS)} {grammar.arguments(tool)}" for tool in tools)
            )
            return [Way(_CALLS, grammar.repeated(call, grammar.mark(_CALLS)))]
        # Sentencepiece puts a space behind the mark.
        calls = grammar.repeated(call_object(grammar, tools, "arguments"), literal(", "))
        return [Way(_CALLS, f'" "? "[" {calls} "]"')]

    def _named(self, source: Source, out: Output) -> Reading[None]:
        """Read a name, an id if there is one, and arguments."""
        source.keep()
        name: list[str] = []
        id: list[str] = []
        stops = (_ARGUMENTS, "{", _CALLS, "\n", *self.ends)
        mark = yield from source.text_until((_ID, *stops), name.append)
        if mark == _ID:
            source.take(len(_ID))
            mark = yield from source.text_until(stops, id.append)
        called = "".join(name).strip()
        if called.split() == [called] and mark in (_ARGUMENTS, "{"):
            yield from source.skip(_ARGUMENTS)
            yield from read_arguments(source, out, called, (_CALLS, *self.ends), "".join(id).strip())
        else:
            yield from source.text_until((_CALLS, *self.ends), lambda _: None)
            out.invalid(source.kept().strip(), "neither a list of calls nor a name with arguments")


def _written(call: ToolCall) -> str:
    id = f', "id": {as_json(call.id)}' if call.id else ""
    return f'{{"name": {as_json(call.name)}, "arguments": {arguments_object(call)}{id}}}'


FORMATS = (Mistral(),)
