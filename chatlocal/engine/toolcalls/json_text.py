"""JSON as models write it, read while it comes: what is beyond doubt is put right, the rest is told.

Put right are control characters inside strings, escapes that JSON does not have, commas before a closing bracket, other
white space than JSON's, and Python's True, False and None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from chatlocal.engine.toolcalls.source import Reading, Source

_ESCAPED = '"\\/bfnrt'
_HEX = frozenset("0123456789abcdefABCDEF")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_OTHER_SPACE = re.compile(r"[^ \t\r\n]")
_WORD_ENDS = frozenset(',:"[]{} \t\r\n')
_WORDS = {"True": "true", "False": "false", "None": "null"}


def loaded(text: str) -> object:
    """The value of a JSON text; None where it is none, or says NaN, or is beyond Python's limits."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read_value(source: Source, ends: Sequence[str], give: Callable[[str], None]) -> Reading[bool]:
    """Read one JSON value and give it as it comes, put right; True when it came to its end.

    `ends` are marks that end a value that is not over, where they stand outside of strings. Whether the value is valid
    is for the caller to find out; brackets are only counted.
    """
    depth = 0
    comma = ""
    while True:
        char = yield from source.peek()
        if not char or (yield from source.next_of(ends)) is not None:
            give(comma)
            return False
        if char in "]}" and depth == 0:
            return False  # the bracket of something around
        if comma and not char.isspace():
            give("" if char in "]}" else comma)
            comma = ""
        if char == '"':
            if not (yield from _read_string(source, give)):
                return False
        elif char in "[{":
            give(source.take(1))
            depth += 1
        elif char in "]}":
            give(source.take(1))
            depth -= 1
        elif char == "," and depth:
            comma = source.take(1)
            continue
        elif char.isspace():
            space = _OTHER_SPACE.sub(" ", (yield from source.skip_space()))
            if comma:
                comma += space
            else:
                give(space)
            continue
        elif char in ":,":
            give(source.take(1))
            continue
        else:
            yield from _read_word(source, ends, give)
        if depth == 0:
            return True


def read_string(source: Source) -> Reading[str | None]:
    """Read a JSON string and decode it; None when the text does not go on with a whole one."""
    if (yield from source.peek()) != '"':
        return None
    pieces: list[str] = []
    if not (yield from _read_string(source, pieces.append)):
        return None
    read = loaded("".join(pieces))
    return read if isinstance(read, str) else None


def _read_string(source: Source, give: Callable[[str], None]) -> Reading[bool]:
    give(source.take(1))
    while True:
        char = yield from source.peek()
        if not char:
            return False
        if char == '"':
            give(source.take(1))
            return True
        if char == "\\":
            source.take(1)
            give((yield from _read_escape(source)))
        elif char < " ":
            give(json.dumps(source.take(1))[1:-1])
        else:
            give(source.take_run(_PLAIN))


def _read_escape(source: Source) -> Reading[str]:
    """What stands behind a backslash, as an escape that JSON has."""
    char = yield from source.peek()
    if char == "u":
        while len(source.ahead(5)) < 5 and _HEX.issuperset(source.ahead(5)[1:]) and not source.ended:
            yield
        code = source.ahead(5)[1:]
        if len(code) == 4 and _HEX.issuperset(code):
            return "\\" + source.take(5)
        return "\\\\"
    if char == "'":
        return source.take(1)
    if char and char in _ESCAPED:
        return "\\" + source.take(1)
    return "\\\\"  # a backslash that stands for itself, as in a path or a pattern


def _read_word(source: Source, ends: Sequence[str], give: Callable[[str], None]) -> Reading[None]:
    """Read a number, a literal or what stands in its place."""
    word = ""
    while True:
        char = yield from source.peek()
        if not char or char in _WORD_ENDS or (yield from source.next_of(ends)) is not None:
            give(_WORDS.get(word, word))
            return
        word += source.take(1)
