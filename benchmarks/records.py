"""Extraction on a labelled set: how many answers are valid, how many fields right, how many values in the text.

120 texts of our own in data/records_labelled.jsonl (80 English, 40 Chinese): one record and lists of them, records
within records, fields that may be absent, choices. Constants were chosen on the half "fit"; the other is held out.
Each text is extracted by the same model in four ways, without examples of the user's:

- by prompt alone: the model writes JSON, nothing holds it;
- by grammar: the model writes JSON of the schema;
- by grammar, grounded: strings are spans of the text too;
- chosen: each value is chosen by likelihood among what the text offers, as `Extractor` does with the embedded model.

Fields are counted as in extraction_scoring.py: a record too many counts as wrong fields, so there may be more fields
than the right answers have. Grounded is the share of strings and numbers, choices left out, that stand in the text.
`python benchmarks/records.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

from extraction_scoring import fields
from record_items import GROUPS, HALVES, RecordItem, read

from chatlocal import ChatLocal
from chatlocal.extractors import Extractor
from chatlocal.extractors.results import Extraction

WAYS: dict[str, dict[str, Any]] = {
    "prompt alone": {"constrain": False},
    "grammar": {"method": "write"},
    "grammar, grounded": {"method": "write", "grounded": True},
    "chosen": {"method": "choose"},
}
NEW_TOKENS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--half", choices=HALVES, default=None, help="default: both")
    parser.add_argument("--items", type=int, default=None, help="so many items from all over the set (default: all)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--show", action="store_true", help="print the answers that are not all right")
    arguments = parser.parse_args()
    items = read(arguments.half, arguments.items)
    llm = ChatLocal(arguments.model, num_threads=arguments.threads, max_tokens=NEW_TOKENS)
    columns = "".join(f"{group:>15}" for group in GROUPS)
    print(f"{'way':20}{'valid':>9}{'fields':>10}{'right':>7}{'grounded':>13}{'s a text':>10}{columns}")
    for way in arguments.ways:
        report(way, items, llm, arguments.show)


def report(way: str, items: list[RecordItem], llm: ChatLocal, show: bool) -> None:
    """One line of the table."""
    start = time.perf_counter()
    found = [extracted(item, llm, way) for item in items]
    seconds = (time.perf_counter() - start) / len(items)
    right, counted = Counter[str](), Counter[str]()
    for item, one in zip(items, found, strict=True):
        judged = [correct for _, correct in fields(item.answer, one.data)]
        right[item.group] += sum(judged)
        counted[item.group] += len(judged)
        if show and not all(judged):
            print(f"    {item.text}\n        {json.dumps(one.data, ensure_ascii=False)}")
    valid = sum(one.data is not None for one in found)
    wanted = sum(len(list(fields(item.answer, item.answer))) for item in items)
    said, grounded = groundedness(found)
    groups = "".join(f"{f'{right[group]}/{counted[group]}':>15}" for group in GROUPS)
    print(
        f"{way:20}{f'{valid}/{len(items)}':>9}{f'{right.total()}/{counted.total()}':>10}"
        f"{right.total() / wanted:7.1%}{f'{grounded}/{said}':>13}{seconds:10.2f}{groups}",
        flush=True,
    )


def extracted(item: RecordItem, llm: ChatLocal, way: str) -> Extraction:
    return Extractor(item.schema, llm, max_retries=0, **WAYS[way]).extract(item.text)


def groundedness(found: list[Extraction]) -> tuple[int, int]:
    """How many values must stand in the text, and how many do."""
    said = [
        "ungrounded" not in field.flags
        for one in found
        for record in one.records
        for field in record.fields
        if isinstance(field.value, (str, int, float)) and not isinstance(field.value, bool)
    ]
    return len(said), sum(said)


if __name__ == "__main__":
    main()
