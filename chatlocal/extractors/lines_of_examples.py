"""A user's own examples in the labelled lines that values are chosen by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.field_list import resolve
from chatlocal.extractors.extraction_prompt import WorkedExample
from chatlocal.extractors.labelled_lines import Wording, label_of


@dataclass(frozen=True)
class ExampleLines:
    """Writes examples of one JSON Schema. A value is written as the text has it, a record of a list as a list of its
    own."""

    schema: Mapping[str, Any]
    words: Wording

    def whole(self, example: WorkedExample) -> str:
        """The text, and a line for each field that holds one value or a list of such."""
        lines = self._lines(self.schema, example.answer, "", lists=False)
        return f"\n{self._text(example)}" + "".join(lines)

    def lists(self, example: WorkedExample) -> str:
        """The text, and a line for each list; nothing where there is none."""
        lines = list(self._lines(self.schema, example.answer, "", lists=True))
        return f"\n{self._text(example)}" + "".join(lines) if lines else ""

    def _text(self, example: WorkedExample) -> str:
        return f"{self.words.text}{self.words.space}{' '.join(example.text.split())}\n"

    def _lines(self, schema: Any, value: Any, label: str, *, lists: bool) -> Iterator[str]:
        inner = self._kind(schema)
        if isinstance(value, list):
            item = self._kind(inner.get("items", {}))
            if value and all(isinstance(each, dict) for each in value):
                first = next((name for name in item.get("properties", {}) if isinstance(value[0].get(name), str)), None)
                if first is not None and lists:
                    own = label_of(first, resolve(item["properties"][first], self.schema))
                    names = [str(each.get(first)) for each in value]
                    yield self._line(f"{label} {own}" if label else own, names, every=True)
                elif not lists and len(value) == 1:
                    yield from self._lines(item, value[0], "", lists=lists)
            elif not any(isinstance(each, (dict, list)) for each in value):
                yield self._line(label, [self._said(each) for each in value], every=lists)
        elif isinstance(value, dict):
            for name, child in inner.get("properties", {}).items():
                own = label_of(name, resolve(child, self.schema))
                yield from self._lines(child, value.get(name), f"{label} {own}" if label else own, lists=lists)
        elif not lists and label:
            yield self._line(label, [self._said(value)], every=False)

    def _kind(self, schema: Any) -> dict[str, Any]:
        whole = resolve(schema, self.schema)
        kinds = [resolve(each, self.schema) for each in whole.get("anyOf") or whole.get("oneOf") or ()]
        return {**whole, **next((each for each in kinds if each.get("type") != "null"), {})}

    def _line(self, label: str, said: list[str], *, every: bool) -> str:
        words = self.words
        value = (words.comma + words.space).join(said) or words.absent
        return words.line(label + (words.every if every else ""), value)

    def _said(self, value: Any) -> str:
        if value is None:
            return self.words.absent
        if isinstance(value, bool):
            return self.words.true if value else self.words.false
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
