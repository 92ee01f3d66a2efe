"""Two readings of one record as one record.

Gaps of the first (null, "", an empty list or object) are filled from the second, and its lists get the items that they
lack. Where two values differ, one found in the text wins over one that was not, then the one without flags, then the
more confident one, then the first.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chatlocal.engine.constraints.references import escape
from chatlocal.engine.errors import OutputInvalid
from chatlocal.extractors.record_schema import RecordSchema
from chatlocal.extractors.results import Field, Record


def joined(first: Record, second: Record, schema: RecordSchema) -> Record:
    """One record of the kind that both have; its place is from the first span to the last."""
    if not isinstance(first.data, dict) and not isinstance(first.data, list):
        return first
    joining = _Joining(first.fields, second.fields)
    data = joining.value(first.data, second.data, "", "")
    kind = next(kind for kind in schema.kinds if kind.name == first.kind)
    try:
        value = kind.build(data)
    except OutputInvalid:  # a rule of the class that each reading keeps and both together break
        return first if _weight(first) >= _weight(second) else second
    known = {one.pointer for one in joining.fields}
    # Of a value that was too unsure to stay in the data only its field is there.
    left_out = [one for one in (*first.fields, *second.fields) if "low confidence" in one.flags]
    fields = (*joining.fields, *{one.pointer: one for one in reversed(left_out) if one.pointer not in known}.values())
    spans = [one.span for one in fields if one.span]
    start = min((span.start for span in spans), default=first.start)
    end = max((span.end for span in spans), default=first.end)
    return Record(data, value, first.kind, fields, first.document, start, end)


def plain(value: Any) -> str:
    """A value to compare by: texts in it without case, width, and repeated white space."""
    return json.dumps(_folded(value), sort_keys=True)


def _folded(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
    if isinstance(value, dict):
        return {name: _folded(item) for name, item in value.items()}
    return [_folded(item) for item in value] if isinstance(value, list) else value


def on_same_words(one: Field, other: Field) -> bool:
    """Whether two values were found on the same words of the document."""
    left, right = one.span, other.span
    return left is not None and right is not None and left.start < right.end and right.start < left.end


class _Joining:
    """Walks two values side by side; `fields` are the leaves of what came out so far, under their pointers there."""

    def __init__(self, first: tuple[Field, ...], second: tuple[Field, ...]) -> None:
        self._first = {one.pointer: one for one in first}
        self._second = {one.pointer: one for one in second}
        self.fields: list[Field] = []

    def value(self, mine: Any, theirs: Any, at: str, theirs_at: str) -> Any:
        """What both values make: `at` is the pointer in the first record and in the one to come."""
        if _is_gap(theirs):
            return self._take(mine, self._first, at, at)
        if _is_gap(mine):
            return self._take(theirs, self._second, theirs_at, at)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            return {name: self._member(name, mine, theirs, at, theirs_at) for name in {**mine, **theirs}}
        if isinstance(mine, list) and isinstance(theirs, list):
            return self._list(mine, theirs, at, theirs_at)
        if _merit(self._second.get(theirs_at)) > _merit(self._first.get(at)):
            return self._take(theirs, self._second, theirs_at, at)
        return self._take(mine, self._first, at, at)

    def _member(self, name: str, mine: dict[str, Any], theirs: dict[str, Any], at: str, theirs_at: str) -> Any:
        at, theirs_at = f"{at}/{escape(name)}", f"{theirs_at}/{escape(name)}"
        if name not in mine:
            return self._take(theirs[name], self._second, theirs_at, at)
        if name not in theirs:
            return self._take(mine[name], self._first, at, at)
        return self.value(mine[name], theirs[name], at, theirs_at)

    def _list(self, mine: list[Any], theirs: list[Any], at: str, theirs_at: str) -> list[Any]:
        items = [self._take(item, self._first, f"{at}/{number}", f"{at}/{number}") for number, item in enumerate(mine)]
        known = {plain(item) for item in mine}
        for number, item in enumerate(theirs):
            place = f"{theirs_at}/{number}"
            if plain(item) not in known and not self._found_before(place, at, len(mine)):
                items.append(self._take(item, self._second, place, f"{at}/{len(items)}"))
        return items

    def _found_before(self, place: str, at: str, length: int) -> bool:
        """Whether a leaf of the second stands on the words of an item of the first, only read otherwise."""
        found = self._second.get(place)
        own = (self._first.get(f"{at}/{number}") for number in range(length))
        return found is not None and any(one is not None and on_same_words(one, found) for one in own)

    def _take(self, value: Any, fields: Mapping[str, Field], source: str, target: str) -> Any:
        for pointer, one in fields.items():
            if pointer == source or pointer.startswith(f"{source}/"):
                self.fields.append(replace(one, pointer=f"{target}{pointer[len(source) :]}"))
        return value


def _is_gap(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _merit(field: Field | None) -> tuple[bool, bool, float]:
    if field is None:
        return (False, False, 0.0)
    return (field.span is not None, not field.flags, field.confidence or 0.0)


def _weight(record: Record) -> tuple[int, int]:
    found = sum(one.span is not None for one in record.fields)
    return found, sum(one.value is not None for one in record.fields)
