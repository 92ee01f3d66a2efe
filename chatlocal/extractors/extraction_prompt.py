"""The conversation that asks a model for the answer of an extraction as JSON: instructions, examples, the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chatlocal.engine import ChatMessage
from chatlocal.engine.constraints.keywords import shown
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.instructions import ask_for_json
from chatlocal.extractors.record_schema import RecordSchema


@dataclass(frozen=True)
class WorkedExample:
    """A text, and the JSON value of the right answer to it."""

    text: str
    answer: Any


def read_examples(examples: Iterable[Any], schema: RecordSchema) -> tuple[WorkedExample, ...]:
    """(text, answer) pairs, an answer being an instance, a dict, or a list of these.

    UnsupportedInput for what is no such pair; OutputInvalid for an answer that the schema refuses.
    """
    return tuple(_read(example, schema) for example in examples)


def _read(example: Any, schema: RecordSchema) -> WorkedExample:
    if not (isinstance(example, (tuple, list)) and len(example) == 2 and isinstance(example[0], str)):
        raise UnsupportedInput(f"An example is a pair of a text and the right answer, got {example!r:.80}.")
    text, answer = example
    value = schema.answer_of(answer)
    schema.check(json.dumps(value, ensure_ascii=False))
    return WorkedExample(text, value)


def conversation(
    text: str,
    schema: Mapping[str, Any],
    *,
    instructions: str | None = None,
    examples: Sequence[WorkedExample] = (),
    trained: bool = True,
) -> tuple[ChatMessage, ...]:
    """The turns that ask for JSON of this schema; `trained` as in `ask_for_json`. Own examples replace general ones."""
    told = shown(schema)
    turns: list[ChatMessage] = [ChatMessage("system", instructions)] if instructions else []
    for example in examples:
        turns += ask_for_json([ChatMessage("user", example.text)], told, trained=trained, examples=False)
        turns.append(ChatMessage("assistant", json.dumps(example.answer, ensure_ascii=False)))
    return (*turns, *ask_for_json([ChatMessage("user", text)], told, trained=trained, examples=not examples))
