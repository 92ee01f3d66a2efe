"""Llama 3.1 and later: JSON objects, <|python_tag|> before them or before code, <function=...> tags, Python lists.

The forms are those of Meta's prompt formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.bare_name import read_name
from chatlocal.engine.toolcalls.bare_object import begins_call_object
from chatlocal.engine.toolcalls.borders import Borders
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, literal
from chatlocal.engine.toolcalls.call_list import begins_call_list, read_call_list
from chatlocal.engine.toolcalls.call_object import read_call
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.json_arguments import read_arguments
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.python_text import read_keywords
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments_object, as_json

_TAG = "<|python_tag|>"
_OPEN, _CLOSE = "<function=", "</function>"
_INTERPRETER = "code_interpreter"  # what Meta's code names the tool that runs code
_OBJECT = '{"name": "'
_METHOD = ".call"  # a call of a built-in tool: brave_search.call(query="...")


class Llama3(ToolFormat):
    """The answer is calls, or has them behind marks. JSON objects and lists behind prose are text."""

    name = "llama3"
    unwritable = ('"', "\\")
    ends = ("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>")
    marks = (_TAG,)

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        yield from source.skip_space()
        yield from self._calls(source, out, marked=False)
        while mark := (yield from read_text(source, out.text, (_TAG, _OPEN), self.ends)):
            if mark == _OPEN:
                yield from self._function(source, out)
                continue
            yield from source.skip_space()
            if not (yield from self._calls(source, out, marked=True)):
                yield from self._code(source, out)

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        return ";".join(
            f'{{"name": {as_json(self.named(call))}, "parameters": {arguments_object(call)}}}' for call in calls
        )

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """One object, which is what the chat template takes; behind the tag or as a <function=> tag where the model
        begins so."""
        arguments = [(tool.name, grammar.arguments(tool)) for tool in tools]
        key, closing = '", "parameters": ', literal("}")
        call = grammar.rule(*(f"{literal(as_json(name)[1:-1], key)} {schema} {closing}" for name, schema in arguments))
        tagged = (Way(f"{_OPEN}{name}>", f"{schema} {literal(_CLOSE)}", offered=False) for name, schema in arguments)
        return [Way(_OBJECT, call, "start"), Way(_TAG + _OBJECT, call, offered=False), *tagged]

    def _calls(self, source: Source, out: Output, marked: bool) -> Reading[bool]:
        """Read the calls that the text goes on with; False when there are none."""
        ends = (_TAG, _OPEN, *self.ends)
        if (yield from begins_call_list(source, out)):
            yield from read_call_list(source, out, ends)
            return True
        if not (yield from begins_call_object(source, out, marked=marked)):
            return False
        while (yield from read_call(source, out, ends)) and (yield from self._next(source, out, marked)):
            pass
        return True

    def _next(self, source: Source, out: Output, marked: bool) -> Reading[bool]:
        """Read what parts a call from the next one, if there is one."""
        source.keep()
        yield from source.skip_space()
        if (yield from source.next_of((";", ","))):
            source.take(1)
            yield from source.skip_space()
        if (yield from begins_call_object(source, out, marked=marked)):
            source.kept()
            return True
        source.rewind()
        return False

    def _function(self, source: Source, out: Output) -> Reading[None]:
        """Read `name>{...}</function>`; without an object the tag is text."""
        source.keep()
        name = yield from read_name(source, out, ">")
        yield from source.skip_space()
        if name is None or (yield from source.peek()) != "{":
            source.rewind()
            out.text(_OPEN)
        else:
            yield from read_arguments(source, out, name, (_CLOSE, _TAG, _OPEN, *self.ends))
            yield from source.skip_space()
            yield from source.skip(_CLOSE)

    def _code(self, source: Source, out: Output) -> Reading[None]:
        """Read code, or the call of a built-in tool."""
        name = yield from self._built_in(source, out)
        if name is not None:
            yield from source.text_until(("(",), lambda _: None)
            source.take(1)
            yield from read_keywords(source, partial(out.arguments, out.start(name)))
            return
        index = out.start(_INTERPRETER)
        borders = Borders()

        def give(code: str) -> None:
            out.arguments(index, as_json(borders.inner(code))[1:-1])

        out.arguments(index, '{"code": "')
        yield from read_text(source, give, (), self.ends)
        out.arguments(index, '"}')

    def _built_in(self, source: Source, out: Output) -> Reading[str | None]:
        """The name when all that follows is the call of a built-in tool; nothing is read."""
        source.keep()
        name = yield from read_name(source, out, "(")
        found = name is not None and name.endswith(_METHOD)
        found = found and (yield from read_keywords(source, lambda _: None)) is None
        if found:
            yield from source.skip_space()
            found = (yield from source.next_of(self.ends)) is not None or not (yield from source.peek())
        source.rewind()
        return name.removesuffix(_METHOD) if found and name else None


FORMATS = (Llama3(),)
