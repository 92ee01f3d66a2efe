"""The value of a JSON text as far as it was written."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json


class PartialJson:
    """Feed it a text in pieces. Strings grow by characters; a number counts when it is complete."""

    def __init__(self) -> None:
        self.text = ""
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> None:
        for character in text:
            self._follow(character)
        self.text += text

    def value(self) -> Any:
        """What there is of the value; what was begun and says nothing yet is left out. ValueError where that is all."""
        return from_json(self._complete(), allow_partial="trailing-strings")

    def _complete(self) -> str:
        """The text without a number at its end, which may still grow from 1 to 12."""
        return self.text if self._in_string else self.text.rstrip("+-.0123456789eE")

    def _follow(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == '"':
            self._in_string = not self._in_string
        else:
            self._escaped = self._in_string and character == "\\"
