"""JSON, in <json> tags unless it is told otherwise."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints import Limits, Spec, marked
from chatlocal.extractors.encoders.encoder import Encoder, ParseError, ReadInPart
from chatlocal.extractors.encoders.lenient_json import Reading, read
from chatlocal.extractors.encoders.node_schema import answer_schema
from chatlocal.extractors.node_examples import nothing_taught
from chatlocal.extractors.nodes import Object

# Brackets that are tried as the beginning of the JSON. Text with more of them in front of it is no answer.
_MOST_STARTS = 200
_TAG = re.compile(r"<json\s*>", re.IGNORECASE)
_CLOSING = re.compile(r"</json|```", re.IGNORECASE)
_BRACKET = re.compile(r"[{\[]")
_FENCE = re.compile(r"```[ \t]*\w*[ \t]*\n")


@dataclass
class JSONEncoder(Encoder):
    """`ensure_ascii` writes characters beyond ASCII as escapes. `record_schema` is a JSON Schema that stands for the
    one of the node's attributes in the grammar: that of the class they were made from.
    """

    node: Object | None = None
    use_tags: bool = True
    ensure_ascii: bool = False
    record_schema: dict[str, Any] | None = None

    def encode(self, data: dict[str, Any]) -> str:
        text = json.dumps(data, ensure_ascii=self.ensure_ascii)
        return f"<json>{text}</json>" if self.use_tags else text

    def decode(self, text: str) -> Any:
        """The first JSON value that has the node's id, else the first at all.

        What is in tags comes before what is in a code fence, and both before the rest.
        """
        reading = self._reading(text)
        if reading is None:
            raise ParseError(_why_nothing(text), text)
        if reading.cut:
            left_out = "The answer ends in the middle of a value, which is left out: raise max_tokens."
            raise ReadInPart(reading.value, [left_out], text)
        return reading.value

    def ends_open(self, text: str) -> bool:
        """Whether the JSON of a text is not closed where the text ends."""
        reading = self._reading(text)
        return reading is None or reading.cut or reading.open

    def get_instruction_segment(self) -> str:
        wrapped = " Put a <json> tag in front of it and a </json> tag behind it." if self.use_tags else ""
        return (
            "Write what you find as one JSON object that has the form above, and write nothing else: no explanation, no"
            f" attributes that are not in the form. Leave out what the text does not say.{wrapped}"
        )

    def spec(self) -> Spec:
        assert self.node is not None  # the chain gives it
        nothing = ' | "{}"' if nothing_taught(self.node) else ""
        around = '"<json>" answer "</json>"' if self.use_tags else "answer"
        lark = f"start: {around}\nanswer: data{nothing}"
        return marked(lark, {}, {"data": answer_schema(self.node, self.record_schema)}, limits=Limits())

    def _reading(self, text: str) -> Reading | None:
        readings = _readings(text)
        fitting = [reading for reading in readings if self._fits(reading.value)]
        if not readings and text.strip().startswith('"{'):  # JSON within a JSON string
            inner = _string(text)
            return None if inner is None else self._reading(inner)
        return next(iter([*fitting, *readings]), None)

    def _fits(self, value: Any) -> bool:
        return self.node is None or (isinstance(value, dict) and self.node.id in value)


def _string(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _readings(text: str) -> list[Reading]:
    """The JSON objects and arrays of a text that stand in no other one, the likeliest first."""
    marks = [(0, mark.end()) for mark in _TAG.finditer(text)] + [(1, mark.end()) for mark in _FENCE.finditer(text)]
    bare = [(2, bracket.start()) for bracket in _BRACKET.finditer(text)]
    found: list[tuple[int, int, Reading]] = []
    tried: set[int] = set()
    for rank, start in [*_starts_behind(text, marks), *bare]:
        inside = any(begin <= start < reading.end for _, begin, reading in found)
        if inside or start in tried or len(tried) >= _MOST_STARTS:
            continue
        tried.add(start)
        reading = read(text, start)
        if reading is not None:
            found.append((rank, start, reading))
    return [reading for _, _, reading in sorted(found, key=lambda each: each[:2])]


def _starts_behind(text: str, marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first bracket behind each mark, in front of the closing one."""
    out = []
    for rank, place in marks:
        bracket, closing = _BRACKET.search(text, place), _CLOSING.search(text, place)
        if bracket and (closing is None or bracket.start() < closing.start()):
            out.append((rank, bracket.start()))
    return sorted(out)


def _why_nothing(text: str) -> str:
    if not text.strip():
        return "The answer is empty."
    return "There is no JSON object in the answer that can be read. More examples may help the model."
