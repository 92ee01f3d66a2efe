"""Telling calls that are JSON objects from other JSON, where nothing else marks them."""

from __future__ import annotations

from chatlocal.engine.toolcalls.bare_name import read_name
from chatlocal.engine.toolcalls.call_object import ARGUMENTS, NAME
from chatlocal.engine.toolcalls.json_text import loaded, read_string, read_value
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

_KEYS = {f'"{key}"': key for key in (NAME, *ARGUMENTS, "type", "id")}


def begins_call_object(source: Source, out: Output, *, marked: bool = False) -> Reading[bool]:
    """Whether the text goes on with an object that is a call, as soon as that is certain; nothing is read.

    A call has a name and arguments and says nothing but those, a type, which is "function", and an id. Its name is a
    declared one, unless its type or a mark before it (`marked`) says that it is a call.
    """
    source.keep()
    begins = yield from _begins(source, out, marked)
    source.rewind()
    return begins


def _begins(source: Source, out: Output, marked: bool) -> Reading[bool]:
    name: str | None = None
    has_arguments = False
    more = yield from source.skip("{")
    while more:
        yield from source.skip_space()
        key = yield from source.next_of(tuple(_KEYS))
        if key is None:
            return False
        source.take(len(key))
        yield from source.skip_space()
        if not (yield from source.skip(":")):
            return False
        yield from source.skip_space()
        if _KEYS[key] == NAME:
            name = (yield from read_name(source, out, '"')) if (yield from source.skip('"')) else None
            if name is None or not (marked or out.declared(name)):
                return False
            if out.known(name):
                return True
        elif _KEYS[key] in ARGUMENTS:
            has_arguments = yield from _are_arguments(source, whole=name is None)
            if not has_arguments:
                return False
        elif key == '"type"':
            marked = yield from source.skip('"function"')
            if not marked:
                return False
        elif (yield from read_string(source)) is None:
            return False
        if name is not None and (has_arguments or marked):
            return True
        yield from source.skip_space()
        more = yield from source.skip(",")
    return False


def _are_arguments(source: Source, whole: bool) -> Reading[bool]:
    """Whether an object, a text with one in it, or null goes on; read to its end where it must be `whole`."""
    first = yield from source.peek()
    if first == '"':
        return isinstance(loaded((yield from read_string(source)) or ""), dict)
    if first == "{":
        return not whole or (yield from read_value(source, (), lambda _: None))
    return (yield from source.skip("null"))
