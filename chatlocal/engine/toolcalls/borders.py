"""White space at the borders of a text that comes in pieces."""

from __future__ import annotations


class Borders:
    """Leaves white space at both ends of a text out: it is held until more text shows that it is not the end."""

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def inner(self, text: str) -> str:
        """What of the text so far is certain with this piece."""
        text = self._held + text if self._begun else text.lstrip()
        inner = text.rstrip()
        self._begun = self._begun or bool(inner)
        self._held = text[len(inner) :]
        return inner
