"""GLM-4.5 and later: each call a name and pairs of keys and values in tags. The form is that of its chat template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, literal
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.named_arguments import arguments_of, tagged_value
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.tagged_text import TaggedText
from chatlocal.engine.toolcalls.writing import arguments, as_json

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_KEY_OPEN, _KEY_END, _VALUE_OPEN, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_OPENINGS = (_OPEN, _KEY_OPEN, _VALUE_OPEN)
_KEY = TaggedText(_KEY_END, (_VALUE_OPEN,), _OPENINGS)
_VALUE = TaggedText(_VALUE_END, (_KEY_OPEN, _CLOSE), _OPENINGS)


class GLM45(ToolFormat):
    """Text and calls in any order. A value goes out when its closing tag has come: only then is its type certain."""

    name = "glm4.5"
    unwritable = ("<",)
    ends = ("<|endoftext|>", "<|user|>", "<|observation|>")
    marks = (_OPEN, _CLOSE, _KEY_OPEN, _KEY_END, _VALUE_OPEN, _VALUE_END)

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        while (yield from read_text(source, out.text, (_OPEN,), self.ends)):
            yield from self._call(source, out)

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        return "\n".join(f"{_OPEN}{''.join(self._lines(call))}{_CLOSE}" for call in calls)

    def _lines(self, call: ToolCall) -> Iterable[str]:
        yield f"{self.named(call)}\n"
        for key, value in arguments(call).items():
            yield f"{_KEY_OPEN}{_KEY.written(key)}{_KEY_END}\n{_VALUE_OPEN}{_VALUE.written(value)}{_VALUE_END}\n"

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """A call in tags, and more of them on lines of their own."""
        call = grammar.rule(*(self._written(grammar, tool) for tool in tools))
        return [Way(_OPEN, grammar.repeated(f"({call} {grammar.mark(_CLOSE)})", f'"\\n" {grammar.mark(_OPEN)}'))]

    def _written(self, grammar: CallGrammar, tool: Tool) -> str:
        pairs = []
        for argument in arguments_of(tool):
            key = (grammar.mark(_KEY_OPEN), literal(_KEY.written(argument.name)), grammar.mark(_KEY_END))
            value = tagged_value(grammar, tool, argument, _VALUE, _VALUE_END)
            pair = " ".join((*key, literal("\n"), grammar.mark(_VALUE_OPEN), value, literal("\n")))
            pairs.append(f"({pair})" if argument.required else f"({pair})?")
        return " ".join((literal(f"{tool.name}\n"), *pairs))

    def _call(self, source: Source, out: Output) -> Reading[None]:
        yield from source.skip_space()
        source.keep()
        pieces: list[str] = []
        yield from source.text_until(("\n", "<"), pieces.append)
        name = "".join(pieces).strip()
        index: int | None = None
        fault: str | None = "the call has no name"
        if name:
            index = out.start(name)
            fault = yield from self._pairs(source, out, name, index)
        if fault is None:
            source.kept()
        else:
            yield from source.text_until((_CLOSE, _OPEN, *self.ends), lambda _: None)
            out.invalid(source.kept().strip(), fault, index)
            yield from source.skip(_CLOSE)

    def _pairs(self, source: Source, out: Output, name: str, index: int) -> Reading[str | None]:
        """Read to the end of a call; what is wrong with it, None when nothing is."""
        parameters = out.parameters(name)
        out.arguments(index, "{")
        gap = ""
        yield from source.skip_space()
        while (yield from source.skip(_KEY_OPEN)):
            key = yield from _KEY.read(source)
            value = None
            if key is not None and (yield from source.skip(_VALUE_OPEN)):
                value = yield from _VALUE.read(source)
            if key is None or value is None:
                return "an argument is cut or broken"
            key = _KEY.plain(key)
            out.arguments(index, f"{gap}{as_json(key)}: {_VALUE.typed(value, parameters, key)}")
            gap = ", "
        if not (yield from source.skip(_CLOSE)):
            return "the call is cut or broken"
        out.arguments(index, "}")
        return None


FORMATS = (GLM45(),)
