"""Answers in which nothing is a call, of models that think before they answer."""

from __future__ import annotations

from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.thinking import Marks


class NoCalls(ToolFormat):
    """Reads the thinking between one of these pairs of marks, and the rest as text; it writes nothing."""

    name = "none"

    def __init__(self, thinking: tuple[Marks, ...]) -> None:
        self.thinking = thinking

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        yield from read_text(source, out.text, (), ())
