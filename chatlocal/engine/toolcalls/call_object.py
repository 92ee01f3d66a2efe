"""Calls written as JSON objects with their names and arguments, in any order, read while they come."""

from __future__ import annotations

from collections.abc import Sequence

from chatlocal.engine.toolcalls.json_text import loaded, read_string, read_value
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

NAME = "name"
ARGUMENTS = ("arguments", "parameters")
# Members that say nothing about the call.
_EMPTY = {("type", '"function"'), ("type", "null"), ("id", "null")}


def read_calls(source: Source, out: Output, ends: Sequence[str], *, late_ids: bool = False) -> Reading[None]:
    """Read an object, a list of objects, or objects in a row, each a call as `read_call` reads it."""
    listed = yield from source.skip("[")
    yield from source.skip_space()
    while not (listed and (yield from source.skip("]"))):
        if not (yield from read_call(source, out, ends, late_ids=late_ids)):
            return
        yield from source.skip_space()
        if listed and (yield from source.skip(",")):
            yield from source.skip_space()
        if (yield from source.peek()) not in ("{", "]" if listed else "{"):
            return


def read_call(source: Source, out: Output, ends: Sequence[str], *, late_ids: bool = False) -> Reading[bool]:
    """Read `{"name": ..., "arguments": {...}}`; "parameters" says the same. True when the call is well formed.

    Arguments go out as they come once the name is known. With `late_ids` they wait for the end of the object unless the
    id stands before them, so that an id behind them is the call's. A call that cannot be read goes out as an invalid
    one with all that stands up to one of `ends` or the end of the text. What else a call says goes out as reasoning.
    """
    source.keep()
    call = _Call(source, out, ends, late_ids)
    error = (yield from call.read_members()) or call.fault()
    if error is None:
        source.kept()
        call.finish()
        return True
    yield from source.text_until(ends, lambda _: None)
    call.give_up(source.kept().strip(), error)
    return False


class _Call:
    def __init__(self, source: Source, out: Output, ends: Sequence[str], late_ids: bool) -> None:
        self._source = source
        self._out = out
        self._ends = ends
        self._late_ids = late_ids
        self._name: str | None = None
        self._id: str | None = None
        self._index: int | None = None
        self._has_arguments = False
        self._arguments: list[str] = []
        self._other: list[str] = []

    def read_members(self) -> Reading[str | None]:
        """Read the object; what is wrong with it, None when nothing is."""
        source = self._source
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
            if (key == NAME and self._name is not None) or (key in ARGUMENTS and self._has_arguments):
                return f"the call says its {key} twice"
            if not (yield from self._read_member(key)):
                return f"the value of {key!r} is cut or broken"
            yield from source.skip_space()
            if (yield from source.skip(",")):
                yield from source.skip_space()
            elif (yield from source.peek()) != "}":
                return "the call's JSON is cut or broken"
        return None

    def fault(self) -> str | None:
        """Why the object is no call, None when it is one."""
        if not self._name:
            return "the call has no name"
        if self._has_arguments and not isinstance(loaded("".join(self._arguments)), dict):
            return "the arguments are no JSON object"
        if self._other and not self._has_arguments:
            return "the call has no arguments, and keys that say something else"
        return None

    def finish(self) -> None:
        """The call is whole: give what has not gone out."""
        if self._index is None and self._name:
            self._out.call(self._name, "".join(self._arguments) or "{}", self._id)
        for text in self._other:
            self._out.reasoning(text)

    def give_up(self, raw: str, error: str) -> None:
        """The call is an invalid one."""
        if self._index is None and self._name:
            self._index = self._out.start(self._name, self._id)
        self._out.invalid(raw, error, self._index)

    def _read_member(self, key: str) -> Reading[bool]:
        if key == NAME:
            self._name = yield from read_string(self._source)
            return self._name is not None
        if key in ARGUMENTS:
            return (yield from self._read_arguments())
        pieces: list[str] = []
        whole = yield from read_value(self._source, self._ends, pieces.append)
        text = "".join(pieces)
        value = loaded(text)
        if key == "id" and isinstance(value, str) and self._id is None:
            self._id = value
        elif (key, text) not in _EMPTY:
            self._other.append(f"\n{key}: {value if isinstance(value, str) else text}")
        return whole

    def _read_arguments(self) -> Reading[bool]:
        self._has_arguments = True
        is_object = (yield from self._source.peek()) == "{"
        if is_object and self._name and (self._id or not self._late_ids):
            self._index = self._out.start(self._name, self._id)
        whole = yield from read_value(self._source, self._ends, self._give)
        if whole and not is_object:
            self._arguments = [_as_object("".join(self._arguments))]
        return whole

    def _give(self, piece: str) -> None:
        self._arguments.append(piece)
        if self._index is not None:
            self._out.arguments(self._index, piece)


def _as_object(text: str) -> str:
    """Arguments that are written as text with JSON in it, or as null, as an object."""
    read = loaded(text)
    if isinstance(read, str):
        return read
    return "{}" if text == "null" else text
