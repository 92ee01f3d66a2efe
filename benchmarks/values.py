"""How many values are right: what the wording around a structured answer is worth on a small model.

28 short texts with one record each (data/records.jsonl, English and Chinese). The grammar makes every answer valid that
is not cut at the token limit; here the values are counted. `python benchmarks/values.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatlocal.engine import ChatMessage, Engine, Sampling, constraints
from chatlocal.engine.field_list import describe
from chatlocal.engine.instructions import ask_for_json

RECORDS = Path(__file__).parent / "data" / "records.jsonl"
NEW_TOKENS = 80


@dataclass
class Item:
    """A text, the schema of its record, and the right record."""

    text: str
    schema: dict[str, Any]
    answer: dict[str, Any]

    @property
    def chinese(self) -> bool:
        return any("\u4e00" <= character <= "\u9fff" for character in self.text)


Wording = Callable[[Item], tuple[ChatMessage, ...]]

WORDINGS: dict[str, Wording] = {
    "JSON schema": lambda item: ask_for_json([ChatMessage("user", item.text)], item.schema, trained=True),
    "fields": lambda item: (ChatMessage("user", f"{item.text}\n\nAnswer as {describe(item.schema)}"),),
    "fields, examples": lambda item: ask_for_json([ChatMessage("user", item.text)], item.schema),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--show", action="store_true", help="print the answers that are not all right")
    arguments = parser.parse_args()
    items = [read(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    print(f"{'wording':20}{'English':>12}{'Chinese':>12}{'cut':>6}{'prompt':>8}")
    with Engine.load(arguments.model, dtype=arguments.dtype) as engine:
        for name, wording in WORDINGS.items():
            report(name, items, engine, wording, arguments.show)


def report(name: str, items: list[Item], engine: Engine, wording: Wording, show: bool) -> None:
    def answer(item: Item) -> tuple[str, int]:
        reply = engine.generate(
            wording(item),
            spec=constraints.json_schema(item.schema),
            sampling=Sampling(temperature=0.0, max_tokens=NEW_TOKENS),
        )
        return reply.message.text, reply.finish.usage.prompt

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(answer, items))
    right = {True: 0, False: 0}
    fields = {True: 0, False: 0}
    cut = 0
    for item, (text, _) in zip(items, answers, strict=True):
        found = parsed(text)
        cut += found is None
        right[item.chinese] += sum((found or {}).get(key) == value for key, value in item.answer.items())
        fields[item.chinese] += len(item.answer)
        if show and found != item.answer:
            print(f"    {item.text} {text}")
    prompt = sum(tokens for _, tokens in answers) / len(answers)
    english, chinese = (f"{right[language]}/{fields[language]}" for language in (False, True))
    print(f"{name:20}{english:>12}{chinese:>12}{cut:6}{prompt:8.0f}")


def parsed(text: str) -> dict[str, Any] | None:
    """The record, or None when the answer was cut."""
    try:
        return dict(json.loads(text))
    except ValueError:
        return None


def read(line: str) -> Item:
    record = json.loads(line)
    properties = {
        name: {"type": kind, "description": words} if isinstance(kind, str) else {"enum": kind, "description": words}
        for name, (kind, words) in record["fields"].items()
    }
    schema = {"title": record["title"], "type": "object", "properties": properties, "required": list(properties)}
    return Item(record["text"], schema, record["answer"])


if __name__ == "__main__":
    main()
