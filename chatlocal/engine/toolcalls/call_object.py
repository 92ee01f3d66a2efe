"""A call written as a JSON object with its name and arguments, in any order, read while it comes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from chatlocal.engine.toolcalls.json_text import read_string, read_value
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

_NAMES = ("name",)
_ARGUMENTS = ("arguments", "parameters")


@dataclass
class _Call:
    name: str | None = None
    id: str | None = None
    index: int | None = None
    arguments: list[str] = field(default_factory=list)
    has_arguments: bool = False


def read_call(source: Source, out: Output, ends: Sequence[str]) -> Reading[bool]:
    """Read `{"name": ..., "arguments": {...}}`; "parameters" says the same, other keys are left aside.

    Arguments go out as they come once the name is known. A call that cannot be read goes out as an invalid one with all
    that stands up to one of `ends` or the end of the text. True when the call is well formed.
    """
    source.keep()
    call = _Call()
    error = yield from _read_members(source, out, ends, call)
    if error is None:
        error = _unusable(call)
    if error is None:
        source.kept()
        if call.index is None and call.name is not None:
            out.call(call.name, "".join(call.arguments) or "{}", call.id)
        elif call.index is not None and not call.has_arguments:
            out.arguments(call.index, "{}")
        return True
    yield from source.text_until(ends, lambda _: None)
    out.invalid(source.kept().strip(), error, call.index)
    return False


def _read_members(source: Source, out: Output, ends: Sequence[str], call: _Call) -> Reading[str | None]:
    """Read the object; what is wrong with it, None when nothing is."""
    if not (yield from source.skip("{")):
        return "the call is not a JSON object"
    yield from source.skip_space()
    while not (yield from source.skip("}")):
        key = yield from read_string(source)
        if key is None:
            return "the call's JSON is cut or broken"
        yield from source.skip_space()
        if not (yield from source.skip(":")):
            return f"no value stands behind {key!r}"
        yield from source.skip_space()
        if not (yield from _read_member(source, out, ends, call, key)):
            return f"the value of {key!r} is cut or broken"
        yield from source.skip_space()
        if (yield from source.skip(",")):
            yield from source.skip_space()
        elif (yield from source.peek()) != "}":
            return "the call's JSON is cut or broken"
    return None


def _read_member(source: Source, out: Output, ends: Sequence[str], call: _Call, key: str) -> Reading[bool]:
    if key in _NAMES and call.name is None:
        call.name = yield from read_string(source)
        return call.name is not None
    if key in _ARGUMENTS and not call.has_arguments:
        return (yield from _read_arguments(source, out, ends, call))
    pieces: list[str] = []
    whole = yield from read_value(source, ends, pieces.append)
    if key == "id" and whole:
        id = _loaded("".join(pieces))
        call.id = id if isinstance(id, str) else None
    return whole


def _read_arguments(source: Source, out: Output, ends: Sequence[str], call: _Call) -> Reading[bool]:
    call.has_arguments = True
    streams = call.name is not None and (yield from source.peek()) == "{"
    if streams and call.name is not None:
        call.index = out.start(call.name, call.id)

    def give(piece: str) -> None:
        call.arguments.append(piece)
        if call.index is not None:
            out.arguments(call.index, piece)

    whole = yield from read_value(source, ends, give)
    if whole and not streams:
        call.arguments = [_as_object("".join(call.arguments))]
    return whole


def _as_object(text: str) -> str:
    """Arguments that are written as text with JSON in it, or as null, as an object."""
    read = _loaded(text)
    if isinstance(read, str):
        return read
    return "{}" if read is None and text.strip() == "null" else text


def _unusable(call: _Call) -> str | None:
    if not call.name:
        return "the call has no name"
    if call.arguments and not isinstance(_loaded("".join(call.arguments)), dict):
        return "the arguments are no JSON object"
    return None


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
