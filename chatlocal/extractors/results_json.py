"""Extractions as JSON and back: the lines of an output file, of the file of its parts, and the data of a report.

A record is {"kind", "data", "start", "end", "fields"}; a field {"pointer", "value", "confidence", "flags"} and, where
it was found in the text, "start", "end", "match" and "score".
"""

from __future__ import annotations

import json
import re
from typing import Any

from chatlocal.extractors.record_schema import RecordSchema
from chatlocal.extractors.results import Extraction, Failure, Field, Record, Span

# What differs between two runs of the same thing is noise of the last bits: batches of other sizes add up otherwise.
_DIGITS = 6


def dump(value: Any) -> str:
    """JSON on one line, in characters that any file can hold: a lone surrogate is escaped, and nothing else."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def record_json(record: Record) -> dict[str, Any]:
    """A record without its document's id, which stands beside it."""
    fields = [_field_json(one) for one in record.fields]
    return {"kind": record.kind, "data": record.data, "start": record.start, "end": record.end, "fields": fields}


def failure_json(failure: Failure) -> dict[str, Any]:
    return {
        "error": failure.error,
        "message": failure.message,
        "raw": failure.raw,
        "start": failure.start,
        "end": failure.end,
    }


def extraction_json(extraction: Extraction) -> dict[str, Any]:
    """All of an extraction but `data` and `value`, which follow from its records, and the document's id."""
    return {
        "records": [record_json(one) for one in extraction.records],
        "failures": [failure_json(one) for one in extraction.failures],
        "raw": list(extraction.raw),
        "usage": dict(extraction.usage),
    }


def document_json(extraction: Extraction) -> dict[str, Any]:
    """What is said of a document to a reader of lines: no figures that another run of the same would not have."""
    found = extraction_json(extraction)
    return {"document": extraction.document, "records": found["records"], "failures": found["failures"]}


def read_extraction(found: dict[str, Any], schema: RecordSchema, document: str | None) -> Extraction:
    """What `extraction_json` wrote."""
    records = tuple(_record(one, schema, document) for one in found["records"])
    failures = tuple(Failure(**one) for one in found["failures"])
    empty = not records and failures
    return Extraction(
        None if empty else schema.gathered([one.data for one in records]),
        None if empty else schema.gathered([one.value for one in records]),
        records,
        failures,
        tuple(found["raw"]),
        document,
        found["usage"],
    )


def _field_json(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {"pointer": field.pointer, "value": field.value}
    if field.span is not None:
        span = field.span
        found |= {"start": span.start, "end": span.end, "match": span.match, "score": round(span.score, _DIGITS)}
    confidence = None if field.confidence is None else round(field.confidence, _DIGITS)
    return {**found, "confidence": confidence, "flags": list(field.flags)}


def _field(found: dict[str, Any]) -> Field:
    span = Span(found["start"], found["end"], found["match"], found["score"]) if "start" in found else None
    return Field(found["pointer"], found["value"], span, found["confidence"], tuple(found["flags"]))


def _record(found: dict[str, Any], schema: RecordSchema, document: str | None) -> Record:
    kind = next(kind for kind in schema.kinds if kind.name == found["kind"])
    data = found["data"]
    fields = tuple(_field(one) for one in found["fields"])
    return Record(data, kind.build(data), kind.name, fields, document, found["start"], found["end"])
