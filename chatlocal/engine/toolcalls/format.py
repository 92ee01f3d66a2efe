"""A format of tool calls: how a model writes them, read back from a stream, and written for its history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from chatlocal.engine.events import Event, Finish, Usage, collect
from chatlocal.engine.messages import InvalidCall, Tool, ToolCall
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.thinking import Marks, read_thinking
from chatlocal.engine.toolcalls.writing import check_name

Tools = Sequence[Tool | Mapping[str, Any] | str]


class Parsed(NamedTuple):
    """A whole answer taken apart."""

    content: str
    calls: list[ToolCall]
    invalid: list[InvalidCall]


class ToolFormat:
    """The base of a format: a subclass has a name and gives `read`, `dump` and `ways`.

    `ends` are marks of the format's models that end an answer: where a text still has them they are left out.
    `marks` are the control tokens that the format's readers look for. `stops` are texts that end an answer and that the
    readers look out for themselves. `thinking` are the pairs of marks that may stand around the thinking before an
    answer. `unwritable` are texts that no name of a function may hold, white space besides; None where any name can be
    written.
    """

    name: str
    ends: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    thinking: tuple[Marks, ...] = (("<think>", "</think>"),)
    unwritable: tuple[str, ...] | None = None

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end. `opened` is what the prompt has already opened of it."""
        raise NotImplementedError

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        raise NotImplementedError

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """How calls to these tools may begin and must go on, in rules of the grammar."""
        raise NotImplementedError

    def named(self, called: Tool | ToolCall) -> str:
        """The name of a tool or of the tool of a call. UnsupportedInput where a call to it could not be read back."""
        if self.unwritable is None:
            return called.name
        return check_name(called.name, self.unwritable, self.name)

    def parser(self, tools: Tools | None = None, opened: str = "", salt: str = "") -> CallParser:
        """A parser for one answer. `tools` are declared tools or their names, None: every name counts as declared.

        `opened` is what the prompt has already opened of the answer. `salt` makes the ids of calls those of one answer.
        """
        declared = None if tools is None else [Tool(tool) if isinstance(tool, str) else Tool.of(tool) for tool in tools]
        return CallParser(self, Output(declared, salt), opened)

    def parse(self, text: str, tools: Tools | None = None, opened: str = "") -> Parsed:
        """A whole answer: its text, its calls, and what looked like a call and cannot be read."""
        parser = self.parser(tools, opened)
        return folded([*parser.feed(text), *parser.flush()])


class CallParser:
    """The events of one answer as it comes. After `flush` it takes no more."""

    def __init__(self, format: ToolFormat, out: Output, opened: str) -> None:
        self._out = out
        self._source = Source()
        self._reading = _whole(format, self._source, out, opened)

    @property
    def over(self) -> bool:
        """Whether the answer is over, whatever the model would write further."""
        return self._out.stopped

    def feed(self, chunk: str) -> list[Event]:
        """The events that became certain with more text."""
        self._source.append(chunk)
        next(self._reading, None)
        return self._out.taken()

    def flush(self) -> list[Event]:
        """The events that are left when the answer is over."""
        self._source.end()
        next(self._reading, None)
        return self._out.taken()


def _whole(format: ToolFormat, source: Source, out: Output, opened: str) -> Reading[None]:
    yield from read_thinking(source, out, format.thinking, format.ends, opened)
    yield from format.read(source, out, opened)


def folded(events: Iterable[Event]) -> Parsed:
    """Events as one answer."""
    reply = collect([*events, Finish("stop", Usage(0, 0))])
    return Parsed(reply.message.text, list(reply.message.tool_calls), list(reply.invalid_calls))
