"""Values of an answer in the types that the nodes give them: "23" of a Number is 23, "007" of a Text stays as it is.

What does not fit stays as the model wrote it, and is named: nothing is guessed and nothing dropped.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Selection, Text

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_ABSENT = frozenset(("", "null", "none", "nan", "n/a", "-"))
_TRUE = frozenset(("true", "yes", "1", "是"))
_FALSE = frozenset(("false", "no", "0", "否"))


def typed(node: Node, value: Any, where: str = "") -> tuple[Any, list[str]]:
    """The value of a node and what does not fit, one sentence each. None is an absent value and fits everywhere."""
    where = where or node.id
    if value is None:
        return None, []
    if not node.many:
        return _one(node, value, where)
    if not isinstance(value, list):
        return value, [f"{where} should be a list, and is {_shown(value)}."]
    found = [_one(node, item, f"{where}[{place}]") for place, item in enumerate(value)]
    return [item for item, _ in found], [problem for _, problems in found for problem in problems]


def _one(node: Node, value: Any, where: str) -> tuple[Any, list[str]]:
    if isinstance(node, (Object, Dictionary)):
        return _members(node, value, where)
    if value is None:
        return None, []
    if isinstance(value, (list, dict)):
        return value, [f"{where} should be {_NAMES[type(node)]}, and is {_shown(value)}."]
    if isinstance(node, Text):
        return (value if node.mixed or isinstance(value, str) else _as_text(value)), []
    written = value.strip() if isinstance(value, str) else value
    if isinstance(written, str) and written.lower() in _ABSENT:
        selected = isinstance(node, Selection) and any(option.means == written for option in node.options)
        return (written if selected else None), []
    if isinstance(node, Selection):
        return _selected(node, written, value, where)
    found = _number(written) if isinstance(node, Number) else _bool(written)
    if found is None:
        return value, [f"{where} should be {_NAMES[type(node)]}, and is {_shown(value)}."]
    return found, []


_NAMES: dict[type[Node], str] = {
    Text: "one text",
    Number: "a number",
    Bool: "true or false",
    Selection: "one option",
}


def _members(node: Object | Dictionary, value: Any, where: str) -> tuple[Any, list[str]]:
    if value is None:
        return None, []
    if not isinstance(value, dict):
        return value, [f"{where} should be an object, and is {_shown(value)}."]
    known = {attribute.id: attribute for attribute in node.attributes} if isinstance(node, Object) else {}
    out, problems = {}, []
    for key, item in value.items():
        child = known.get(key) if isinstance(node, Object) else node.value
        out[key], found = (item, []) if child is None else typed(child, item, f"{where}.{key}")
        problems += found
    return out, problems


def _selected(node: Selection, written: Any, value: Any, where: str) -> tuple[Any, list[str]]:
    for option in node.options:
        if _as_text(written) in (option.id, _as_text(option.means)):
            return option.means, []
    options = ", ".join(option.id for option in node.options)
    return value, [f"{where} should be one of {options}, and is {_shown(value)}."]


def _number(written: Any) -> int | float | None:
    if isinstance(written, bool):
        return None
    if isinstance(written, (int, float)):
        return written if math.isfinite(written) else None
    if not isinstance(written, str):
        return None
    narrow = unicodedata.normalize("NFKC", written)  # wide digits are digits
    plain = narrow.replace(",", "") if _GROUPED.fullmatch(narrow) else narrow
    if not _NUMBER.fullmatch(plain) or not plain.isascii():
        return None
    if re.fullmatch(r"[+-]?\d{1,4000}", plain):
        return int(plain)
    number = float(plain)
    return number if math.isfinite(number) else None


def _bool(written: Any) -> bool | None:
    word = str(written).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
