"""The thinking that stands before an answer, kept apart from it."""

from __future__ import annotations

from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source


def read_thinking(source: Source, out: Output, marks: tuple[str, str], is_open: bool) -> Reading[None]:
    """Read the thinking at the start of an answer, if there is any: between the marks, or open from the first on."""
    opening, closing = marks
    space = yield from source.skip_space()
    if not is_open and not (yield from source.skip(opening)):
        out.text(space)
        return
    if (yield from source.text_until([closing], out.reasoning)) is not None:
        source.take(len(closing))
