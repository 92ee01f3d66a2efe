"""Options that are on or off."""

from __future__ import annotations

from typing import Any

from chatlocal.engine.errors import UnsupportedInput


def check_flags(*values: Any) -> None:
    """UnsupportedInput for what is neither True nor False: the text "false" would turn an option on."""
    for value in values:
        if not isinstance(value, bool):
            raise UnsupportedInput(f"An option of a prompt that is on or off takes True or False, got {value!r:.80}.")
