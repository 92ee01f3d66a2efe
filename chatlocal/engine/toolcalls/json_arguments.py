"""Calls whose names stand by themselves, with their arguments behind them as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence

from chatlocal.engine.toolcalls.json_text import loaded, read_value
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source


def read_arguments(source: Source, out: Output, name: str, ends: Sequence[str], id: str | None = None) -> Reading[bool]:
    """Read the arguments of a call to `name` and give the call as they come. True when it is well formed.

    The caller has begun to `keep` the source where the call begins. A call that cannot be read goes out as an invalid
    one with all from there up to one of `ends` or the end of the text.
    """
    index = out.start(name, id)
    pieces: list[str] = []

    def give(piece: str) -> None:
        pieces.append(piece)
        out.arguments(index, piece)

    yield from source.skip_space()
    is_object = (yield from source.peek()) == "{"
    if is_object and (yield from read_value(source, ends, give)) and isinstance(loaded("".join(pieces)), dict):
        source.kept()
        return True
    yield from source.text_until(ends, lambda _: None)
    out.invalid(source.kept().strip(), "the arguments are no JSON object, or cut or broken", index)
    return False
