"""Whether the confidence in a field tells how often it is right: a reliability table over labelled texts.

The model answers each text of data/records_labelled.jsonl (English and Chinese, one record or several) through
`Extractor`, greedily, under the grammar of its schema. A field is a leaf of a record; it is right where it is equal to
the leaf at the same place of the right record, one of a list of texts where it is among them. Of several right records
each found one has that with which it shares the most, none twice; a record too many has nothing right. The confidence
is what `Extraction` gives: the product of the probabilities of its ids among those that the grammar allowed. It speaks
of the value and not of whether there is a record at all, so fields of records that are there are counted apart, too.
The last table says what `min_confidence` does: how many fields stay, and how many of these are right.
`python benchmarks/calibration.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from record_items import HALVES, RecordItem, read
from reliability import Judged, accuracy, bins, brier, calibration_error, ranking

from chatlocal.engine import Engine
from chatlocal.extractors.extractor import Extractor
from chatlocal.extractors.results import Field, Record

THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
NEW_TOKENS = 400
AT_ONCE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--half", choices=HALVES, default=None, help="one half of the set (default: both)")
    parser.add_argument("--items", type=int, default=None, help="so many items from all over the set (default: all)")
    parser.add_argument("--grounded", action="store_true", help="hold every string to the text")
    parser.add_argument("--json", action="store_true", help="print one JSON object, every field included")
    arguments = parser.parse_args()
    items = read(arguments.half, arguments.items)
    with (
        Engine.load(arguments.model, dtype=arguments.dtype, num_threads=arguments.threads) as engine,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        answered = list(threads.map(lambda item: judged(engine, item, grounded=arguments.grounded), items))
        model = engine.name
    measured = {
        "model": model,
        "dtype": arguments.dtype,
        "grounded": arguments.grounded,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "items": len(items),
        "without an answer": sum(fields is None for fields in answered),
        "fields": [field for fields in answered for field in fields or ()],
    }
    print(json.dumps(measured, ensure_ascii=False) if arguments.json else table(measured))


def judged(engine: Engine, item: RecordItem, *, grounded: bool) -> list[dict[str, Any]] | None:
    """The fields of the answer to one item, as plain dicts; None where there is no valid answer."""
    extractor = Extractor(item.schema, engine, grounded=grounded, max_retries=0, max_tokens=NEW_TOKENS)
    found = extractor.extract(item.text)
    if found.data is None:
        return None
    rights = item.answer if isinstance(item.answer, list) else [item.answer]
    return [
        {
            "kind": kind(field.value),
            "confidence": field.confidence,
            "surplus": right is None,
            "right": right is not None and is_right(field, right),
            "grounded": field.span is not None,
        }
        for record, right in zip(found.records, paired(found.records, rights), strict=True)
        for field in record.fields
        if field.confidence is not None
    ]


def paired(records: Sequence[Record], rights: list[Any]) -> list[Any]:
    """The right record for each that was found, None where there are none left."""
    shared = [
        (-sum(is_right(field, right) for field in record.fields), abs(number - place), number, place)
        for number, record in enumerate(records)
        for place, right in enumerate(rights)
    ]
    out: dict[int, int] = {}
    for _, _, number, place in sorted(shared):
        if number not in out and place not in out.values():
            out[number] = place
    return [rights[out[number]] if number in out else None for number in range(len(records))]


def is_right(field: Field, right: Any) -> bool:
    return any(same(field.value, value) for value in values_at(right, field.pointer.split("/")[1:]))


def values_at(right: Any, way: list[str]) -> list[Any]:
    """The right values for a place: one, or those of the list in which it stands; a key that is left out is null."""
    for part in way:
        if isinstance(right, list):
            if all(not isinstance(each, (dict, list)) for each in right):
                return right
            right = right[int(part)] if int(part) < len(right) else {}
        else:
            right = right.get(part) if isinstance(right, dict) else None
    return [right]


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and 2.0 is 2."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def table(measured: dict[str, Any]) -> str:
    """What was measured, as Markdown."""
    rows: dict[str, list[Judged]] = {"all": [], "all in records that are there": []}
    for each in sorted(measured["fields"], key=lambda each: str(each["kind"])):
        value = Judged(each["confidence"], each["right"])
        names = ["all", each["kind"], *([] if each["surplus"] else ["all in records that are there"])]
        for name in names:
            rows.setdefault(name, []).append(value)
    everything = rows["all"]
    head = ", ".join(f"{name}: {value}" for name, value in measured.items() if name != "fields")
    lines = [head, "", "| confidence | fields | mean confidence | right |", "|---|---:|---:|---:|"]
    lines += [
        f"| {each.low:.1f} to {each.high:.1f} | {each.count} | {each.confidence:.2f} | {each.right:.0%} |"
        for each in bins(everything)
    ]
    lines += ["", "| fields | number | right | mean confidence | calibration error | Brier | ranking |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for name, values in rows.items():
        mean = sum(each.confidence for each in values) / len(values)
        rank = ranking(values)
        lines.append(
            f"| {name} | {len(values)} | {accuracy(values):.0%} | {mean:.2f} | {calibration_error(values):.2f}"
            f" | {brier(values):.2f} | {'' if rank is None else f'{rank:.2f}'} |"
        )
    lines += ["", "| min_confidence | fields kept | right of these |", "|---|---:|---:|"]
    for threshold in THRESHOLDS:
        kept = [each for each in everything if each.confidence >= threshold]
        if kept:
            lines.append(f"| {threshold} | {len(kept) / len(everything):.0%} | {accuracy(kept):.0%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
