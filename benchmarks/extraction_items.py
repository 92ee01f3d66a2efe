"""The items of data/extraction.jsonl: a short text, a JSON schema, and the one right answer.

A line is {"title", "fields", "text", "answer"}; `fields` maps a name to [kind, words]. A kind is

- a JSON type, "date", or "strings" (a list of them); with "?" behind it the text may be silent, and null is right then;
- a list of choices;
- {"record": fields} for a record within the record, {"records": fields} for a list of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatlocal.engine.constraints import validation

ITEMS = Path(__file__).parent / "data" / "extraction.jsonl"


@dataclass(frozen=True)
class Item:
    """A text, the schema of what it says, and the right answer."""

    text: str
    schema: dict[str, Any]
    answer: dict[str, Any]

    @property
    def group(self) -> str:
        """The language, and whether the answer holds a list of records."""
        chinese = any("\u4e00" <= character <= "\u9fff" for character in self.text)
        records = any(isinstance(value, list) and isinstance(value[0], dict) for value in self.answer.values())
        return f"{'Chinese' if chinese else 'English'} {'lists' if records else 'single'}"


GROUPS = ("English single", "English lists", "Chinese single", "Chinese lists")


def read(path: Path = ITEMS, count: int | None = None) -> list[Item]:
    """All items, or `count` of them from all over the file. ValueError for an answer that cannot be right."""
    items = [_item(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    if count is None or count >= len(items):
        return items
    return [items[place * len(items) // count] for place in range(count)]


def _item(line: dict[str, Any]) -> Item:
    item = Item(line["text"], {"title": line["title"], **_record(line["fields"])}, line["answer"])
    validation.check(item.schema, json.dumps(item.answer))
    for value, schema in _strings(item.answer, item.schema):
        if value not in schema.get("enum", item.text):
            raise ValueError(f"{value!r} is neither in the text nor a choice: {item.text}")
    return item


def _record(fields: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: kind_schema(kind) | ({"description": words} if words else {}) for name, (kind, words) in fields.items()
    }
    # As Pydantic writes `int | None = None`: it may be left out as well as be null.
    required = [name for name, schema in properties.items() if "default" not in schema]
    return {"type": "object", "properties": properties, "required": required}


def kind_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a kind."""
    if isinstance(kind, list):
        return {"enum": kind}
    if isinstance(kind, dict) and "record" in kind:
        return _record(kind["record"])
    if isinstance(kind, dict):
        return {"type": "array", "items": _record(kind["records"])}
    if kind == "strings":
        return {"type": "array", "items": {"type": "string"}}
    if kind == "date":
        return {"type": "string", "format": "date"}
    if kind.endswith("?"):
        return {"anyOf": [kind_schema(kind[:-1]), {"type": "null"}], "default": None}
    return {"type": kind}


def _strings(value: Any, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each text in an answer, with its schema."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, schema["properties"][key])
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, schema["items"])
    elif isinstance(value, str):
        yield value, schema
