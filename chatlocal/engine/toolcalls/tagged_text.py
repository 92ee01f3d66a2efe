"""Values that stand as plain text between tags, where nothing in the format keeps the tags out of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.toolcalls.json_text import loaded
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.typed_text import typed
from chatlocal.engine.toolcalls.writing import as_json


@dataclass(frozen=True)
class TaggedText:
    """How values end, and how those that hold tags are written.

    A value ends at the `closing` tag that something of what may `follow` it, or the end of the text, stands behind; so
    a closing tag in the midst of a value does not end it. A tag that is one of `openings` cannot stand in a value: it
    shows that the closing one is missing. Strings that hold tags are therefore written as JSON strings with the angle
    brackets escaped, and only what is exactly such a string is taken for one when it is read.
    """

    closing: str
    follow: tuple[str, ...]
    openings: tuple[str, ...]

    def read(self, source: Source) -> Reading[str | None]:
        """Read a value and its closing tag; None when it does not end, or another tag opens before."""
        pieces: list[str] = []
        while (yield from source.text_until((self.closing, *self.openings), pieces.append)) == self.closing:
            source.keep()
            source.take(len(self.closing))
            yield from source.skip_space()
            ends = (yield from source.next_of(self.follow)) is not None or not (yield from source.peek())
            between = source.kept()
            if ends:
                return "".join(pieces)
            pieces.append(between)
        return None

    def written(self, value: Any) -> str:
        """A value: a string as it is wherever that can be read back, anything else as JSON."""
        if isinstance(value, str):
            return _escaped(value) if self._needs_escape(value) else value
        text = as_json(value)
        return _without_brackets(text) if any(tag in text for tag in self._tags()) else text

    def plain(self, text: str) -> str:
        """The string that a text stands for."""
        unescaped = self._unescaped(text)
        return text if unescaped is None else unescaped

    def typed(self, text: str, parameters: dict[str, Any], name: str) -> str:
        """The value of a parameter as JSON; see typed_text."""
        unescaped = self._unescaped(text)
        return typed(text, parameters, name) if unescaped is None else as_json(unescaped)

    def _unescaped(self, text: str) -> str | None:
        """The string that was written as an escaped one, None when the text is no such one."""
        value = loaded(text) if text.startswith('"') else None
        return value if isinstance(value, str) and _escaped(value) == text and self._needs_escape(value) else None

    def _needs_escape(self, value: str) -> bool:
        return any(tag in value for tag in self._tags()) or self._unescaped(value) is not None

    def _tags(self) -> Iterator[str]:
        yield self.closing
        yield from self.openings


def _escaped(value: str) -> str:
    return _without_brackets(as_json(value))


def _without_brackets(json_text: str) -> str:
    """JSON with its angle brackets escaped: they stand in strings only."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e")
