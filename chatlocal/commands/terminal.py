"""Emphasis on a terminal, plain text everywhere else."""

from __future__ import annotations

import os
from typing import TextIO

_RESET = "\x1b[0m"


class Style:
    """Marks text for one stream. Nothing is marked off a terminal or where NO_COLOR (no-color.org) is set."""

    def __init__(self, stream: TextIO) -> None:
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.on = stream.isatty() and wanted

    def bold(self, text: str) -> str:
        return self._marked("1", text)

    def dim(self, text: str) -> str:
        return self._marked("2", text)

    def accent(self, text: str) -> str:
        return self._marked("36", text)

    def _marked(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{_RESET}" if self.on and text else text
