"""Calls written as a list of Python calls, `[f(a=1), g(b="x")]`, read while they come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from chatlocal.engine.messages import ToolCall
from chatlocal.engine.toolcalls.bare_name import read_name
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.python_text import read_argument_name, read_keywords
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments, as_keywords, check_name

# A name ends at the bracket of its arguments.
UNWRITABLE = ("(",)


def begins_call_list(source: Source, out: Output) -> Reading[bool]:
    """Whether the text goes on with a list of calls, as soon as that is certain; nothing is read.

    The first call's name is a declared one; where every name counts as declared, what stands in its brackets must look
    like named arguments.
    """
    source.keep()
    begins = yield from _begins(source, out)
    source.rewind()
    return begins


def _begins(source: Source, out: Output) -> Reading[bool]:
    if not (yield from source.skip("[")):
        return False
    yield from source.skip_space()
    name = yield from read_name(source, out, "(")
    if name is None or not out.declared(name):
        return False
    if out.known(name):
        return True
    yield from source.skip_space()
    if (yield from source.next_of((")", "**{"))):
        return True
    return (yield from read_argument_name(source)) is not None


def read_call_list(source: Source, out: Output, ends: Sequence[str]) -> Reading[None]:
    """Read a list of calls. One that cannot be read goes out as an invalid one with all that stands up to one of `ends`
    or the end of the text."""
    yield from source.skip("[")
    yield from source.skip_space()
    while not (yield from source.skip("]")):
        source.keep()
        index: int | None = None
        fault: str | None = "this is no call"
        if (name := (yield from read_name(source, out, "("))) is not None:
            index = out.start(name)
            fault = yield from read_keywords(source, partial(out.arguments, index))
        if fault is not None:
            yield from source.text_until(ends, lambda _: None)
            out.invalid(source.kept().strip(), fault, index)
            return
        source.kept()
        yield from source.skip_space()
        if (yield from source.skip(",")):
            yield from source.skip_space()
        elif (yield from source.peek()) != "]":
            return
        if not (yield from source.peek()):
            return


def written_list(calls: Iterable[ToolCall], format: str) -> str:
    """The calls as one list. UnsupportedInput for what cannot be written."""
    written = (f"{check_name(call.name, UNWRITABLE, format)}({as_keywords(arguments(call))})" for call in calls)
    return f"[{', '.join(written)}]"
