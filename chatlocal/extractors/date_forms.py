"""Dates as texts write them: 2024-03-01, 1 March 2024, March 1st, 2024, 01/03/2024 and 2024年3月1日.

Where day and month cannot be told apart a place has both readings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

_MONTHS = [
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
]
_NUMBERS = {form: number for number, name in enumerate(_MONTHS, 1) for form in (name, name[:3])} | {"sept": 9}
_MONTH = rf"(?P<name>{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{4})"
_FORMS = [
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?<!\d){_YEAR}(?P<mark>[-/.])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}})(?!\d)",
        rf"(?<!\d)(?P<first>\d{{1,2}})(?P<mark>[-/.])(?P<second>\d{{1,2}})(?P=mark){_YEAR}(?!\d)",
        rf"\b{_DAY}(?: of)?[ -]{_MONTH},?[ -]{_YEAR}\b",
        rf"\b{_MONTH} {_DAY},? {_YEAR}\b",
        rf"(?<!\d){_YEAR}\s*年\s*(?P<month>\d{{1,2}})\s*月\s*(?P<day>\d{{1,2}})\s*[日号號]",
    )
]
# The date of a point in time: what stands behind it is the time of day.
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]\d{2}:\d{2}\S*")


class Date(NamedTuple):
    """A reading of text[start:end]."""

    value: date
    start: int
    end: int


def dates(text: str) -> Iterator[Date]:
    """Every whole date of a text in each of its readings."""
    for form in _FORMS:
        for match in form.finditer(text):
            yield from (Date(value, *match.span()) for value in _readings(match.groupdict()))


def read_date(value: str) -> set[date]:
    """The readings of a value that is a date as a whole, or a point in time (RFC 3339); none for others."""
    stripped = value.strip()
    in_time = _TIME.fullmatch(stripped)
    stripped = in_time[1] if in_time else stripped
    return {each.value for each in dates(stripped) if (each.start, each.end) == (0, len(stripped))}


def _readings(parts: dict[str, str]) -> set[date]:
    orders = [(parts.get("month"), parts.get("day"))]
    if "first" in parts:
        orders = [(parts["first"], parts["second"]), (parts["second"], parts["first"])]
    elif "name" in parts:
        orders = [(str(_NUMBERS[parts["name"].lower()]), parts["day"])]
    found = set()
    for month, day in orders:
        try:
            found.add(date(int(parts["year"]), int(month or 0), int(day or 0)))
        except ValueError:  # no such day
            continue
    return found
