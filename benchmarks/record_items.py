"""The items of data/records_labelled.jsonl: a short text, the JSON Schema of what it holds, and the right answer.

A line is {"half", "title", "form", "fields", "text", "answer"}. `form` is "one" for a single record and "many" for a
list of them; `fields` are written as in extraction_items.py, with empty words where a field has no description, and
"number?" and the like where the text may be silent. The second half was held out: nothing was chosen on it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extraction_items import kind_schema

from chatlocal.engine.constraints import validation

ITEMS = Path(__file__).parent / "data" / "records_labelled.jsonl"
HALVES = ("fit", "held out")


@dataclass(frozen=True)
class RecordItem:
    """A text, the schema to extract (an array for several records), and the right answer."""

    half: str
    text: str
    schema: dict[str, Any]
    answer: Any

    @property
    def group(self) -> str:
        """The language, and whether several records are asked for."""
        chinese = any("\u4e00" <= character <= "\u9fff" for character in self.text)
        return f"{'Chinese' if chinese else 'English'} {'many' if isinstance(self.answer, list) else 'one'}"


GROUPS = ("English one", "English many", "Chinese one", "Chinese many")


def read(half: str | None = None, count: int | None = None) -> list[RecordItem]:
    """The items of a half, or of both; `count` of them from all over. ValueError for an answer that cannot be right."""
    lines = [json.loads(line) for line in ITEMS.read_text(encoding="utf-8").splitlines()]
    items = [_item(line) for line in lines if half in (None, line["half"])]
    if count is None or count >= len(items):
        return items
    return [items[place * len(items) // count] for place in range(count)]


def _item(line: dict[str, Any]) -> RecordItem:
    record = {"title": line["title"], **kind_schema({"record": line["fields"]})}
    schema = record if line["form"] == "one" else {"type": "array", "items": record}
    validation.check(schema, json.dumps(line["answer"]))
    return RecordItem(line["half"], line["text"], schema, line["answer"])
