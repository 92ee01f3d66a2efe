"""Python literals as models write them, read while they come and given as JSON. Nothing is ever evaluated.

Read are texts (not bytes, not f-strings), numbers, True, False, None (and JSON's names for them), lists, tuples and
dicts with texts as keys. What Python would refuse and is beyond doubt is put right: line ends inside texts, and
backslashes that begin no escape.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from chatlocal.engine.toolcalls.source import Reading, Source

Give = Callable[[str], None]

_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_QUOTES = ('"', "'")
_OPENINGS = tuple(prefix + quote for prefix in ("", "r", "R", "u", "U") for quote in _QUOTES)
_PLAIN = re.compile(r"""[^"'\\\x00-\x1f]+""")
_WORD = re.compile(r"[\w.+-]+")
_NAME = re.compile(r"""[^\s=,:*"'()\[\]{}]+""")
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_DEEPEST = 200  # brackets in brackets, as in Python's own parser


def read_keywords(source: Source, give: Give) -> Reading[str | None]:
    """Read `name=value, ...)`, what stands behind the opening bracket of a call, and give it as a JSON object.

    Names that are no Python names stand in `**{...}`. What is wrong is returned, None when nothing is.
    """
    give("{")
    gap = ""
    yield from source.skip_space()
    while not (yield from source.skip(")")):
        if (yield from source.skip("**{")):
            if not (yield from _read_pairs(source, give, gap, 1)):
                return "the arguments are cut, broken or no literals"
        else:
            name = yield from read_argument_name(source)
            if name is None:
                return "an argument has no name, or the call is cut"
            yield from source.skip_space()
            give(f"{gap}{json.dumps(name, ensure_ascii=False)}: ")
            if not (yield from read_literal(source, give, 1)):
                return f"the argument {name} is cut, broken or no literal"
        gap = ", "
        yield from source.skip_space()
        if not (yield from source.skip(",")) and (yield from source.peek()) != ")":
            return "the arguments are cut, broken or no literals"
        yield from source.skip_space()
    give("}")
    return None


def read_argument_name(source: Source) -> Reading[str | None]:
    """Read `name=`; None when something else stands there."""
    name = yield from _read_run(source, _NAME)
    yield from source.skip_space()
    if not name.isidentifier() or (yield from source.begins_with("==")) or not (yield from source.skip("=")):
        return None
    return name


def read_literal(source: Source, give: Give, depth: int = 0) -> Reading[bool]:
    """Read one literal, in so many brackets; True when it came to its end."""
    if depth > _DEEPEST:
        return False
    if (yield from source.skip("[")):
        give("[")
        count = yield from _read_items(source, give, "]", depth + 1)
        give("" if count is None else "]")
        return count is not None
    if (yield from source.skip("{")):
        give("{")
        whole = yield from _read_pairs(source, give, "", depth + 1)
        give("}" if whole else "")
        return whole
    if (yield from source.skip("(")):
        return (yield from _read_tuple(source, give, depth + 1))
    if (opening := (yield from source.next_of(_OPENINGS))) is not None:
        return (yield from _read_texts(source, give, opening))
    return (yield from _read_scalar(source, give))


def _read_items(source: Source, give: Give, closing: str, depth: int) -> Reading[int | None]:
    """Read to the closing bracket; how many commas stood there, None when something is broken."""
    commas = 0
    gap = ""
    yield from source.skip_space()
    while not (yield from source.skip(closing)):
        give(gap)
        if not (yield from read_literal(source, give, depth)):
            return None
        gap = ", "
        yield from source.skip_space()
        if (yield from source.skip(",")):
            commas += 1
            yield from source.skip_space()
        elif (yield from source.peek()) != closing:
            return None
    return commas


def _read_tuple(source: Source, give: Give, depth: int) -> Reading[bool]:
    """Read a tuple, or a literal in brackets: a comma at its end may tell."""
    pieces: list[str] = []
    commas = yield from _read_items(source, pieces.append, ")", depth)
    inner = "".join(pieces)
    give(inner if commas == 0 and inner else f"[{inner}]")
    return commas is not None


def _read_pairs(source: Source, give: Give, gap: str, depth: int) -> Reading[bool]:
    """Read `key: value, ...}`."""
    yield from source.skip_space()
    while not (yield from source.skip("}")):
        opening = yield from source.next_of(_OPENINGS)
        if opening is None:
            return False
        give(gap)
        if not (yield from _read_texts(source, give, opening)) or not (yield from source.skip(":")):
            return False
        give(": ")
        yield from source.skip_space()
        if not (yield from read_literal(source, give, depth)):
            return False
        gap = ", "
        yield from source.skip_space()
        if (yield from source.skip(",")):
            yield from source.skip_space()
        elif (yield from source.peek()) != "}":
            return False
    return True


def _read_scalar(source: Source, give: Give) -> Reading[bool]:
    word = yield from _read_run(source, _WORD)
    written = _WORDS.get(word) or _number(word)
    give(written or "")
    return written is not None


def _read_run(source: Source, pattern: re.Pattern[str]) -> Reading[str]:
    run = ""
    while True:
        run += source.take_run(pattern)
        if source.ahead(1) or not (yield from source.more()):
            return run


def _number(word: str) -> str | None:
    """A Python number as JSON, None when it is none."""
    if _JSON_NUMBER.fullmatch(word):
        return word
    bare = word.removeprefix("+")
    if not bare.removeprefix("-")[:1].isdigit() and not bare.removeprefix("-").startswith("."):
        return None
    try:
        number = float(bare) if re.search(r"[.eE]", bare) and "x" not in bare.lower() else int(bare, 0)
    except ValueError:
        return None
    return json.dumps(number) if math.isfinite(number) else None


def _read_texts(source: Source, give: Give, opening: str) -> Reading[bool]:
    """Read a text, and those that stand right behind it, which are one with it; and the white space behind them."""
    give('"')
    next_one: str | None = opening
    while next_one is not None:
        source.take(len(next_one))
        if not (yield from _read_text(source, give, next_one[-1], next_one[0] in "rR")):
            return False
        yield from source.skip_space()
        next_one = yield from source.next_of(_OPENINGS)
    give('"')
    return True


def _read_text(source: Source, give: Give, quote: str, raw: bool) -> Reading[bool]:
    """Read a text behind its first quote and give its inside as that of a JSON string."""
    closing = quote * 3 if (yield from source.skip(quote * 2)) else quote
    while True:
        if (yield from source.skip(closing)):
            return True
        char = yield from source.peek()
        if not char:
            return False
        if char == "\\":
            source.take(1)
            give(_inside("\\") if raw else _inside((yield from _read_escape(source))))
            if raw and (yield from source.peek()) in ("\\", *_QUOTES):
                give(_inside(source.take(1)))
        elif char in _QUOTES or char < " ":
            give(_inside(source.take(1)))
        else:
            give(source.take_run(_PLAIN))


def _read_escape(source: Source) -> Reading[str]:
    """What stands behind a backslash, as what it says; a backslash that begins no escape says itself."""
    char = yield from source.peek()
    if char == "\n":
        source.take(1)
        return ""
    if char and char in "01234567":
        digits = yield from _read_digits(source, 3, "01234567")
        return chr(int(digits, 8))
    if char in _HEX_LENGTHS:
        length = _HEX_LENGTHS[char]
        source.keep()
        source.take(1)
        digits = yield from _read_digits(source, length, "0123456789abcdefABCDEF")
        if len(digits) == length and int(digits, 16) < 0x110000:
            source.kept()
            return chr(int(digits, 16))
        source.rewind()
        return "\\"
    return _ESCAPES[source.take(1)] if char in _ESCAPES else "\\"


def _read_digits(source: Source, most: int, kind: str) -> Reading[str]:
    digits = ""
    while len(digits) < most and (char := (yield from source.peek())) and char in kind:
        digits += source.take(1)
    return digits


def _inside(text: str) -> str:
    """A text as it stands inside of a JSON string; halves of characters as escapes, so that two make a whole."""
    return json.dumps(text, ensure_ascii="\ud800" <= text <= "\udfff")[1:-1]
