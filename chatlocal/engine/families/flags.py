"""Options that are on or off."""

from __future__ import annotations

from typing import Any

from chatlocal.engine.errors import UnsupportedInput


def check_flags(**flags: Any) -> None:
    """UnsupportedInput for a flag that is neither True nor False: the text "false" would turn it on."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UnsupportedInput(f"{name} takes True or False, got {value!r:.80}.")
