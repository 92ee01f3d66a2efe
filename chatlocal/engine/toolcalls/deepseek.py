"""DeepSeek-V3, R1 and V3.1: marks that are tokens around each call and around all of them.

The forms are those of the published chat templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, literal
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.json_arguments import read_arguments
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments_object

_ALL_BEGIN, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _NAME, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_KIND, _FENCE_OPEN, _FENCE = "function", "```json", "```"


class _DeepSeek(ToolFormat):
    """Text and calls in any order. Both wire forms are read: what stands before the separator tells them apart."""

    unwritable = ("<｜", "{", "`")
    ends = ("<｜end▁of▁sentence｜>",)
    marks = (_ALL_BEGIN, _BEGIN, _NAME, _END, _ALL_END)

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        marks = (_ALL_BEGIN, _BEGIN, _END, _ALL_END)
        while mark := (yield from read_text(source, out.text, marks, self.ends)):
            yield from source.skip_space()
            if mark == _BEGIN:
                yield from self._call(source, out, (*marks, *self.ends))

    def _calls(self, grammar: CallGrammar, calls: Iterable[str], separator: str) -> Sequence[Way]:
        """Calls between the marks of all of them."""
        call = f"{grammar.mark(_BEGIN)} {grammar.rule(*calls)} {grammar.mark(_END)}"
        return [Way(_ALL_BEGIN, f"{grammar.repeated(f'({call})', literal(separator))} {grammar.mark(_ALL_END)}")]

    def _call(self, source: Source, out: Output, ends: tuple[str, ...]) -> Reading[None]:
        """Read `function<sep>name` with the arguments in a code block, or `name<sep>` with them bare."""
        source.keep()
        name: list[str] = []
        mark = yield from source.text_until((_NAME, *ends), name.append)
        if mark == _NAME:
            source.take(len(_NAME))
            yield from source.skip_space()
            if "".join(name).strip() == _KIND and (yield from source.peek()) != "{":
                name.clear()
                mark = yield from source.text_until(("\n", _FENCE, "{", *ends), name.append)
        called = "".join(name).strip()
        if not called or mark in (*ends, None):
            yield from source.text_until(ends, lambda _: None)
            index = out.start(called) if called else None
            out.invalid(source.kept().strip(), "the call is cut, or has no name", index)
            return
        yield from source.skip_space()
        yield from source.skip(_FENCE_OPEN)
        if (yield from read_arguments(source, out, called, ends)):
            yield from source.skip_space()
            if (yield from source.skip(_FENCE)):
                yield from source.skip_space()


class DeepSeekV3(_DeepSeek):
    """`function<sep>name` and the arguments in a code block."""

    def __init__(self, name: str) -> None:
        self.name = name

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        joined = "\n".join(
            f"{_BEGIN}{_KIND}{_NAME}{self.named(call)}\n{_FENCE_OPEN}\n{arguments_object(call)}\n{_FENCE}{_END}"
            for call in calls
        )
        return f"{_ALL_BEGIN}{joined}{_ALL_END}" if joined else ""

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """Calls on lines of their own."""
        kind = f"{literal(_KIND)} {grammar.mark(_NAME)}"
        opening, closing = f"\n{_FENCE_OPEN}\n", literal("\n", _FENCE)
        calls = (f"{kind} {literal(tool.name, opening)} {grammar.arguments(tool)} {closing}" for tool in tools)
        return self._calls(grammar, calls, "\n")


class DeepSeekV31(_DeepSeek):
    """`name<sep>` and the arguments bare."""

    name = "deepseek_v3.1"

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        joined = "".join(f"{_BEGIN}{self.named(call)}{_NAME}{arguments_object(call)}{_END}" for call in calls)
        return f"{_ALL_BEGIN}{joined}{_ALL_END}" if joined else ""

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """Calls one behind the other."""
        name = grammar.mark(_NAME)
        return self._calls(grammar, (f"{literal(tool.name)} {name} {grammar.arguments(tool)}" for tool in tools), "")


FORMATS = (DeepSeekV3("deepseek_v3"), DeepSeekV3("deepseek_r1"), DeepSeekV31())
