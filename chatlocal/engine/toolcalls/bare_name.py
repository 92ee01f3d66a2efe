"""Names of functions in text that nothing marks as a call."""

from __future__ import annotations

from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source


def read_name(source: Source, out: Output, closing: str) -> Reading[str | None]:
    """Read a name and the character behind it; None, and something may be read, as soon as there cannot be one."""
    name = ""
    while char := (yield from source.peek()):
        if char == closing:
            source.take(1)
            return name if out.is_name(name) else None
        name += char
        if not out.may_become_name(name):
            return None
        source.take(1)
    return None
