"""The thinking that stands before an answer, kept apart from it."""

from __future__ import annotations

from collections.abc import Sequence

from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source

Marks = tuple[str, str]


def read_thinking(
    source: Source, out: Output, marks: Sequence[Marks], ends: Sequence[str], opened: str
) -> Reading[None]:
    """Read the thinking at the start of an answer, if there is any: between marks, or open from the first on.

    `marks` are the pairs that may stand around it, `opened` is what the prompt has opened of the answer.
    """
    space = yield from source.skip_space()
    closing = next((close for open, close in marks if _is_open(opened, open, close)), None)
    opening = yield from source.next_of([open for open, _ in marks])
    if opening is not None:
        source.take(len(opening))
        closing = dict(marks)[opening]
    if closing is None:
        out.text(space)
    else:
        yield from read_text(source, out.reasoning, (closing,), ends)


def _is_open(opened: str, opening: str, closing: str) -> bool:
    return opening in opened and closing not in opened.rpartition(opening)[2]
