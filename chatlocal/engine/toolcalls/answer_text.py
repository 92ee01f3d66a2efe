"""The text of an answer between calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chatlocal.engine.toolcalls.source import Reading, Source


def read_text(
    source: Source, give: Callable[[str], None], marks: Sequence[str], ends: Sequence[str]
) -> Reading[str | None]:
    """Give text as it comes up to the first mark, which is read too and returned; None at the end.

    `ends` are marks that end an answer: they are left out where nothing but white space follows, and text elsewhere.
    """
    while (mark := (yield from source.text_until((*marks, *ends), give))) is not None:
        if mark in marks:
            source.take(len(mark))
            return mark
        source.keep()
        while (mark := (yield from source.next_of(ends))) is not None:
            source.take(len(mark))
            yield from source.skip_space()
        written = source.kept()
        if (yield from source.peek()):
            give(written)
    return None
