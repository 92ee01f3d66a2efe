"""From the extractions of a text's parts to the one of the whole text: offsets moved, repeats joined, in text order.

Which records are one and the same:

- with a key, those whose key fields are equal (but for case, width and white space), wherever they stand;
- where the schema has one record for a text, all of them;
- else, of different parts, those with a value on the same words of the text that agree in more values than they differ
  in; or, without any words to go by, those that are equal and were read from parts that overlap;
- of one part, those that are equal, on the same words.

The first of them keeps its place; how they become one, `joining` says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chatlocal.extractors.joining import joined, on_same_words, plain
from chatlocal.extractors.record_schema import RecordSchema
from chatlocal.extractors.results import Extraction, Field, Record
from chatlocal.extractors.splitting import Part


def moved(extraction: Extraction, part: Part, document: str | None) -> Extraction:
    """The extraction of a part with offsets of the whole document."""
    by = part.start
    records = tuple(
        replace(
            record,
            document=document,
            start=record.start + by,
            end=record.end + by,
            fields=tuple(
                replace(one, span=replace(one.span, start=one.span.start + by, end=one.span.end + by))
                if one.span
                else one
                for one in record.fields
            ),
        )
        for record in extraction.records
    )
    failures = tuple(replace(one, start=one.start + by, end=one.end + by) for one in extraction.failures)
    return replace(extraction, records=records, failures=failures, document=document)


def merge(
    parts: Sequence[tuple[Part, Extraction]],
    schema: RecordSchema,
    *,
    key: Sequence[str] | None = None,
    document: str | None = None,
) -> Extraction:
    """One extraction of the document from those of its parts, whose offsets are the document's already (`moved`).

    `key` names fields at the top of a record. Parts come in the order in which they count: of equals the first wins.
    """
    found = _Found(schema, tuple(key or ()))
    usage: dict[str, int] = defaultdict(int)
    for number, (part, extraction) in enumerate(parts):
        for name, amount in extraction.usage.items():
            usage[name] += amount
        last = part.start
        for record in extraction.records:
            spans = [one.span for one in record.fields if one.span]
            last = spans[0].start if spans else last
            found.add(record, number, last)
    records = found.in_order()
    failures = tuple(failure for _, extraction in parts for failure in extraction.failures)
    empty = not records and failures
    return Extraction(
        None if empty else schema.gathered([record.data for record in records]),
        None if empty else schema.gathered([record.value for record in records]),
        records,
        failures,
        tuple(answer for _, extraction in parts for answer in extraction.raw),
        document,
        dict(usage),
    )


@dataclass
class _Entry:
    record: Record
    part: int
    """Number of the part that it was first read from."""
    place: int
    """What it is ordered by where none of its values was found: the place of the record before it in its part."""


def _place(entry: _Entry) -> int:
    """Where the first value of a record stands; it may have come from a later part than the record."""
    return next((one.span.start for one in entry.record.fields if one.span), entry.place)


class _Found:
    """The records so far, with ways to find those that a new one may be the same as."""

    def __init__(self, schema: RecordSchema, key: tuple[str, ...]) -> None:
        self._schema = schema
        self._key = key
        self._entries: list[_Entry] = []
        self._by_trait: dict[Any, list[_Entry]] = defaultdict(list)

    def add(self, record: Record, part: int, place: int) -> None:
        entry = self._same_as(record, part)
        if entry is None:
            self._entries.append(entry := _Entry(record, part, place))
        else:
            entry.record = joined(entry.record, record, self._schema)
        for trait in self._traits(record):
            if entry not in self._by_trait[trait]:
                self._by_trait[trait].append(entry)

    def in_order(self) -> tuple[Record, ...]:
        return tuple(entry.record for entry in sorted(self._entries, key=_place))

    def _same_as(self, record: Record, part: int) -> _Entry | None:
        if self._schema.form == "one":
            return next(iter(self._entries), None)
        keyed = self._key_of(record)
        if self._by_trait.get(keyed):
            return self._by_trait[keyed][0]
        for trait in self._traits(record):
            for entry in self._by_trait[trait]:
                other = entry.record
                keys_differ = keyed is not None and self._key_of(other) is not None
                if other.kind == record.kind and not keys_differ and _same(other, record, entry.part == part):
                    return entry
        return None

    def _key_of(self, record: Record) -> Any:
        """None where the record lacks a key field: then its place decides."""
        data = record.data if isinstance(record.data, dict) else {}
        values = [data.get(name) for name in self._key]
        return None if not self._key or None in values else ("key", record.kind, *map(plain, values))

    def _traits(self, record: Record) -> Iterator[Any]:
        """What two records that are the same have in common, one of these at least."""
        keyed = self._key_of(record)
        if keyed is not None:
            yield keyed
        spans = [one.span for one in record.fields if one.span]
        for span in spans:
            yield "start", span.start
            yield "end", span.end
        if not spans:
            yield record.kind, plain(record.data)


def _same(one: Record, other: Record, one_part: bool) -> bool:
    if one_part:
        places = [{field.span for field in record.fields} - {None} for record in (one, other)]
        return places[0] == places[1] != set() and plain(one.data) == plain(other.data)
    mine, theirs = _said(one), _said(other)
    if not any(field.span for field in (*mine, *theirs)):
        overlap = one.start < other.end and other.start < one.end
        return overlap and plain(one.data) == plain(other.data)
    agree = differ = touching = 0
    for left in mine:
        for right in theirs:
            if _shape(left) != _shape(right):
                continue
            touch = on_same_words(left, right)
            touching += touch
            if left.pointer == right.pointer == _shape(left):
                equal = touch or plain(left.value) == plain(right.value)
                agree, differ = agree + equal, differ + (not equal)
            else:  # items of lists, which need not begin with the same one
                agree += touch
    return touching > 0 and agree > differ


def _said(record: Record) -> list[Field]:
    return [one for one in record.fields if one.value is not None and "low confidence" not in one.flags]


def _shape(field: Field) -> str:
    """The pointer without the numbers of items."""
    return re.sub(r"/\d+(?=/|$)", "/*", field.pointer)
