"""Where in a JSON text one is: what stands in strings is told apart, numbers stay finite, brackets are counted."""

from __future__ import annotations

import math
from typing import NamedTuple

_DIGITS = b"0123456789"
_NUMBER = _DIGITS + b".eE+-"
_SPACE = b" \t\r\n"
_CLOSED_BY = {ord("]"): ord("["), ord("}"): ord("{")}


class Place(NamedTuple):
    """Where in JSON text: inside a string or not, and the characters of the number that is being written.

    `begins_string` is right behind the quote that opens one, `begins_value` where a value comes next. `open` are the
    brackets that are still to be closed.
    """

    quoted: bool = False
    escaped: bool = False
    number: bytes = b""
    begins_string: bool = False
    begins_value: bool = True
    open: bytes = b""


def after(place: Place, text: bytes) -> Place | None:
    """The place after more text; None when a number in it is out of range."""
    quoted, escaped, number, _, value, brackets = place
    begins = False
    for char in text:
        begins = not quoted and char == 0x22
        if quoted:
            quoted, escaped = escaped or char != 0x22, not escaped and char == 0x5C
        elif char in _NUMBER:
            number += bytes([char]).lower()
            value = False
            if char in _DIGITS and not math.isfinite(_value(number)):
                return None
        elif char in _SPACE:
            number = b""
        else:
            quoted, number = char == 0x22, b""
            value = char in b"[:" or (char in b"," and brackets[-1:] == b"[")
            if char in b"[{":
                brackets += bytes([char])
            elif char in b"]}" and brackets[-1:] == bytes([_CLOSED_BY[char]]):
                brackets = brackets[:-1]
    return Place(quoted, escaped, number, begins, value, brackets)


def _value(number: bytes) -> float:
    try:
        return float(number)
    except ValueError:  # text that the grammar refuses as well
        return 0.0
