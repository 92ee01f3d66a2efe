"""Where in a JSON text one is: what stands in strings is told apart, and numbers stay finite."""

from __future__ import annotations

import math
from typing import NamedTuple

_DIGITS = b"0123456789"
_NUMBER = _DIGITS + b".eE+-"


class Place(NamedTuple):
    """Where in JSON text: inside a string or not, and the characters of the number that is being written.

    `begins_string` is right behind the quote that opens one.
    """

    quoted: bool = False
    escaped: bool = False
    number: bytes = b""
    begins_string: bool = False


def after(place: Place, text: bytes) -> Place | None:
    """The place after more text; None when a number in it is out of range."""
    quoted, escaped, number, _ = place
    begins = False
    for char in text:
        begins = not quoted and char == 0x22
        if quoted:
            quoted, escaped = escaped or char != 0x22, not escaped and char == 0x5C
        elif char in _NUMBER:
            number += bytes([char]).lower()
            if char in _DIGITS and not math.isfinite(_value(number)):
                return None
        else:
            quoted, number = char == 0x22, b""
    return Place(quoted, escaped, number, begins)


def _value(number: bytes) -> float:
    try:
        return float(number)
    except ValueError:  # text that the grammar refuses as well
        return 0.0
