"""An extractor that finds records by a rule, without a model: what runs over documents do can be seen exactly.

Run as a program it extracts from a file, so that a test can kill it: FILE OUTPUT CALLS DELAY. CALLS gets a line for
each part that was asked for.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from chatlocal.extractors.document_run import extract_documents
from chatlocal.extractors.record_schema import read_record_schema
from chatlocal.extractors.results import Extraction, Field, Record, Span

SENTENCE = re.compile(r"(?P<name>[A-Z]\w+|[\u4e00-\u9fff]{1,3}?)(?: is |是)(?P<color>\w+?)(?=[.,。])")


class Dog(BaseModel):
    name: str
    color: str


class Rule:
    """What stands where a model stands."""

    model = "a rule"


class RuleExtractor:
    """Every "NAME is COLOR." of a text is a Dog; a token is a character.

    `texts` are the texts that were asked for. `before` is called with each of them first, and may raise.
    """

    def __init__(self, before: Callable[[str], object] = lambda text: None, key: tuple[str, ...] | None = None) -> None:
        self.schema = read_record_schema(list[Dog])
        self.key = key
        self.llm = Rule()
        self.instructions = self.min_confidence = self.max_tokens = self.method = None
        self.examples: tuple[Any, ...] = ()
        self.grounded = self.constrain = False
        self.max_retries = 0
        self.texts: list[str] = []
        self._before = before
        self._lock = threading.Lock()

    def extract(self, text: str, *, document: str | None = None) -> Extraction:
        with self._lock:
            self.texts.append(text)
        self._before(text)
        records = tuple(_record(found) for found in SENTENCE.finditer(text))
        data, value = [one.data for one in records], [one.value for one in records]
        return Extraction(data, value, records, (), (f"{len(records)} found",), document, {"prompt_tokens": len(text)})

    def count_tokens(self, text: str) -> int:
        return len(text)


def _record(found: re.Match[str]) -> Record:
    data = found.groupdict()
    fields = tuple(Field(f"/{name}", data[name], Span(*found.span(name), "exact"), 0.1 + 0.2) for name in data)
    return Record(data, Dog(**data), "Dog", fields, None, *found.span())


def main(file: str, output: str, calls: str, delay: str) -> None:
    def note(text: str) -> None:
        with open(calls, "a", encoding="utf-8") as log:
            log.write(f"{text!r}\n")
        time.sleep(float(delay))

    documents = [tuple(block.split("\t")) for block in Path(file).read_text(encoding="utf-8").split("\x1e")]
    extractor: Any = RuleExtractor(note)
    for _ in extract_documents(
        extractor, documents, output=output, part_tokens=120, overlap_tokens=30, concurrency=4, progress=False
    ):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
