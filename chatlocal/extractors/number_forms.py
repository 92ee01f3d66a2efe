"""Numbers as texts write them: 1,200 and 1 200 and 1.200,00 and twelve hundred are one; three, 三 and 3 are.

A text can be read in more than one way (1.200 is a thousand to some and one to others), so each place has all readings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import NamedTuple


class Number(NamedTuple):
    """A reading of text[start:end]."""

    value: Decimal
    start: int
    end: int


_UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_BEHIND_TENS = ["", *(f"-{unit}" for unit in _UNITS[1:])]
_ENGLISH = {word: value for value, word in enumerate(_UNITS + _TEENS)} | {
    f"{tens}{unit}": 10 * value + one
    for (value, tens), (one, unit) in product(enumerate(_TENS, 2), enumerate(_BEHIND_TENS))
}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "k": 1000, "mn": 10**6, "bn": 10**9}
_SCALES |= {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_CHINESE = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "兩": 2, "〇": 0}

_DIGITS = re.compile(
    r"(?<![\d.,])"
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+(?:,\d+)?"
    r"|\d{1,3}(?:[ \u00a0\u2009\u202f'’]\d{3})+(?:[.,]\d+)?|\d+[.,]\d+|\d+)"
    r"(?!\d|[.,]\d)"
)
_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_POINTS = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
# What is no one number: 12.05.2024, 1,2,3.
_CHAIN = re.compile(r"(?<![\d.,])\d+(?:[.,]\d+){2,}")
_PLAIN = re.compile(r"\d+")
_SCALE = re.compile(r"[ \u00a0-]?(?:(hundred|thousand|million|billion|mn|bn|k)\b|([百千万萬亿億]))", re.IGNORECASE)
_WORDS = re.compile(
    rf"\b(?:{'|'.join(word.replace('-', '[ -]') for word in sorted(_ENGLISH, key=len, reverse=True))})\b", re.IGNORECASE
)
_CHINESE_NUMBER = re.compile(r"[零〇一二两兩三四五六七八九十百千万萬亿億]+")
# What is counted with a number of one character; without it that is mostly a part of a word, or of a name.
_COUNTED = re.compile(
    "[个個只隻条條本张張位名人岁歲年月日天次块塊元斤公里米层層号號点點分秒小时時套间間家辆輛台部件份杯瓶桌道级級]"
)


def numbers(text: str) -> Iterator[Number]:
    """Every number of a text in each of its readings."""
    for match in _DIGITS.finditer(text):
        start, end = match.span()
        readings = set(_readings(match[0]))
        for value in readings:
            yield from _scaled(text, value, start, end)
        if re.search(r"[\s'’]", match[0]):  # "12 345" may be two numbers
            for part in _PLAIN.finditer(text, start, end):
                yield Number(Decimal(part[0]), *part.span())
        if start and text[start - 1] in "-−–" and not (start > 1 and text[start - 2].isalnum()):
            yield from (Number(-value, start - 1, end) for value in readings)
        if text[end : end + 1] in ("%", "％"):
            yield from (Number(value / 100, start, end + 1) for value in readings)
    for chain in _CHAIN.finditer(text):
        if not _DIGITS.fullmatch(chain[0]):
            for part in _PLAIN.finditer(text, *chain.span()):
                yield Number(Decimal(part[0]), *part.span())
    for match in _WORDS.finditer(text):
        yield from _scaled(text, Decimal(_ENGLISH[re.sub(r"\s", "-", match[0].lower())]), *match.span())
    for match in _CHINESE_NUMBER.finditer(text):
        read = chinese_number(match[0])
        alone = match.span() == (0, len(text))
        if len(match[0]) == 1 and not alone and not _COUNTED.match(text, match.end()):
            continue
        if read is not None:
            yield Number(Decimal(read), *match.span())


def read_number(value: object) -> set[Decimal]:
    """The readings of a value that is a number as a whole; none for others."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return set()
    if isinstance(value, str):
        stripped = value.strip()
        return {each.value for each in numbers(stripped) if (each.start, each.end) == (0, len(stripped))}
    try:
        return {Decimal(repr(value))}
    except InvalidOperation:
        return set()


def chinese_number(written: str) -> int | None:
    """The value of a number in Chinese characters; None for what is no such number."""
    if all(character in _CHINESE for character in written):
        return int("".join(str(_CHINESE[character]) for character in written))
    total = section = digit = 0
    for character in written:
        if character in _CHINESE:
            digit = _CHINESE[character]
        elif (scale := _SCALES[character]) < 10**4:
            if not digit and section:
                return None
            section += (digit or 1) * scale
            digit = 0
        else:
            if not section + digit + total:
                return None
            total = (total + section + digit) * scale if scale > 10**4 else total + (section + digit) * scale
            section = digit = 0
    return total + section + digit


def _readings(written: str) -> Iterator[Decimal]:
    """A comma before three digits stands between thousands; a point there may be either."""
    plain = re.sub(r"[\s'’]", "", written)
    if _COMMAS.fullmatch(plain):
        yield Decimal(plain.replace(",", ""))
        return
    if _POINTS.fullmatch(plain):
        yield Decimal(plain.replace(".", "").replace(",", "."))
    if plain.count(".") + plain.count(",") <= 1:
        yield Decimal(plain.replace(",", "."))


def _scaled(text: str, value: Decimal, start: int, end: int) -> Iterator[Number]:
    """A number, and with the "million" behind it."""
    scale = _SCALE.match(text, end)
    if scale is not None:
        yield Number(value * _SCALES[(scale[1] or scale[2]).lower()], start, scale.end())
    yield Number(value, start, end)
