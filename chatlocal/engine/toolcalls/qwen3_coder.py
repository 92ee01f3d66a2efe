"""Qwen3-Coder: each call a function with its parameters in tags. The form is that of its chat template."""

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
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_VALUE = TaggedText(_PARAMETER_END, (_PARAMETER, _FUNCTION_END, _CLOSE), (_OPEN, _FUNCTION, _PARAMETER))
# The name of a parameter ends at the bracket of its tag.
_KEY = TaggedText(">", (), ("<", "\n"))


class Qwen3Coder(ToolFormat):
    """Text and calls in any order; a function outside of <tool_call> tags is text.

    A value goes out when its closing tag has come: only then is its type certain.
    """

    name = "qwen3_coder"
    unwritable = ("<", ">")
    ends = ("<|im_end|>", "<|endoftext|>")
    marks = (_OPEN, _CLOSE)

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        inside = False
        while mark := (yield from read_text(source, out.text, (_OPEN, _CLOSE) if inside else (_OPEN,), self.ends)):
            inside = mark == _OPEN
            if inside:
                yield from source.skip_space()
                while (yield from self._function(source, out)) and (yield from source.begins_with(_FUNCTION)):
                    pass

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        return "\n".join(f"{_OPEN}\n{''.join(self._lines(call))}{_CLOSE}" for call in calls)

    def _lines(self, call: ToolCall) -> Iterable[str]:
        yield f"{_FUNCTION}{self.named(call)}>\n"
        for key, value in arguments(call).items():
            yield f"{_PARAMETER}{_KEY.written(key)}>\n{_VALUE.written(value)}\n{_PARAMETER_END}\n"
        yield f"{_FUNCTION_END}\n"

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """A call in tags, and more of them on lines of their own."""
        call = grammar.rule(*(self._call(grammar, tool) for tool in tools))
        return [Way(_OPEN, grammar.repeated(f"({call} {grammar.mark(_CLOSE)})", f'"\\n" {grammar.mark(_OPEN)}'))]

    def _call(self, grammar: CallGrammar, tool: Tool) -> str:
        end = ">\n"
        parameters = []
        for argument in arguments_of(tool):
            value = tagged_value(grammar, tool, argument, _VALUE, f"\n{_PARAMETER_END}\n")
            parameter = f"{literal(_PARAMETER, _KEY.written(argument.name), end)} {value}"
            parameters.append(f"({parameter})" if argument.required else f"({parameter})?")
        opening, closing = literal("\n", _FUNCTION, tool.name, end), literal(f"{_FUNCTION_END}\n")
        return " ".join((opening, *parameters, closing))

    def _function(self, source: Source, out: Output) -> Reading[bool]:
        """Read a function and the white space behind it; False when it cannot be read."""
        source.keep()
        index: int | None = None
        fault: str | None = "no function stands in the call"
        name = (yield from _label(source)) if (yield from source.skip(_FUNCTION)) else None
        if name:
            index = out.start(name)
            fault = yield from self._parameters(source, out, name, index)
        if fault is None:
            source.kept()
            yield from source.skip_space()
            return True
        yield from source.text_until((_CLOSE, _OPEN, *self.ends), lambda _: None)
        out.invalid(source.kept().strip(), fault, index)
        return False

    def _parameters(self, source: Source, out: Output, name: str, index: int) -> Reading[str | None]:
        """Read to the end of a function; what is wrong with it, None when nothing is."""
        parameters = out.parameters(name)
        out.arguments(index, "{")
        gap = ""
        yield from source.skip_space()
        while (yield from source.skip(_PARAMETER)):
            key = yield from _label(source)
            value = None if key is None else (yield from _VALUE.read(source))
            if key is None or value is None:
                return "a parameter is cut or broken"
            key = _KEY.plain(key)
            written = _VALUE.typed(value.removeprefix("\n").removesuffix("\n"), parameters, key)
            out.arguments(index, f"{gap}{as_json(key)}: {written}")
            gap = ", "
        # Without its closing tag a function is whole where the call is closed.
        if not (yield from source.skip(_FUNCTION_END)) and not (yield from source.begins_with(_CLOSE)):
            return "the function is cut or broken"
        out.arguments(index, "}")
        return None


def _label(source: Source) -> Reading[str | None]:
    """Read a name and the bracket that ends its tag; None when there is none on the line."""
    name: list[str] = []
    if (yield from source.text_until((">", "<", "\n"), name.append)) != ">":
        return None
    source.take(1)
    return "".join(name)


FORMATS = (Qwen3Coder(),)
