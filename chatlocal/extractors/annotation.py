"""Records with their words: where each value stands, how sure the model was of it, why a person should look at it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.constraints.references import unescape
from chatlocal.extractors.grounding import Aligner
from chatlocal.extractors.leaf_schemas import LeafSchemas
from chatlocal.extractors.normal_form import normal
from chatlocal.extractors.placing import leaves, place
from chatlocal.extractors.results import Field, Flag, Span


def annotate(
    data: Any,
    schema: dict[str, Any],
    text: str,
    *,
    examples: Iterable[Any] = (),
    confidence: Mapping[str, float] | None = None,
    min_confidence: float | None = None,
    aligner: Aligner | None = None,
) -> tuple[Any, tuple[Field, ...]]:
    """The data, and its leaves in their order, each with its place in the text.

    `schema` is that of the data, with all definitions. `examples` are (text, answer) pairs that the model was shown, or
    answers alone. `confidence` has probabilities by JSON pointers into the data. `aligner` is one for this text that
    knows which places are taken, where a text's data is annotated record by record.

    Flags: "ungrounded" for a string or number that is not in the text, unless its schema lists the values;
    "copied from an example" beside it, or for one that is only nearly in the text, where an example has it;
    "low confidence" below `min_confidence`. A value of low confidence is null in the data that comes back. Where the
    schema takes no null its key is left out, if it may be absent and has no default that would stand in its place;
    else the value stays, and the flag says it.
    """
    schemas = LeafSchemas(schema)
    aligner = Aligner(text) if aligner is None else aligner
    shown = _Shown(examples)
    fields = []
    found = leaves(data)
    for (pointer, value), span in zip(found, place(found, aligner), strict=True):
        listed = any("enum" in each or "const" in each for each in schemas.at(pointer))
        if listed and span is not None and span.match == "fuzzy":
            span = None  # a label is the schema's word: near is by chance
        sure = None if confidence is None else confidence.get(pointer)
        flags = [] if listed else list(_grounding_flags(value, span, shown))
        if min_confidence is not None and sure is not None and sure < min_confidence:
            flags.append("low confidence")
        fields.append(Field(pointer, value, span, sure, tuple(flags)))
    doubtful = [field.pointer for field in fields if "low confidence" in field.flags]
    return (_without(data, doubtful, schema, schemas) if doubtful else data), tuple(fields)


class _Shown:
    """What the examples say: `texts` as they are read, `values` of their answers."""

    def __init__(self, examples: Iterable[Any]) -> None:
        self._values: set[str] = set()
        self._aligners: list[Aligner] = []
        for example in examples:
            text, answer = example if isinstance(example, tuple) and len(example) == 2 else ("", example)
            if isinstance(text, str) and text:
                self._aligners.append(Aligner(text))
            self._values.update(_key(value) for _, value in leaves(_plain(answer)))

    def has(self, value: Any) -> bool:
        return _key(value) in self._values or any(
            (span := aligner.align(value)) is not None and span.match != "fuzzy" for aligner in self._aligners
        )


def _plain(answer: Any) -> Any:
    """An answer as JSON data: instances of Pydantic's classes among it are written as that."""
    if hasattr(answer, "model_dump"):
        return answer.model_dump(mode="json", by_alias=True)
    if isinstance(answer, Mapping):
        return {str(key): _plain(value) for key, value in answer.items()}
    return [_plain(value) for value in answer] if isinstance(answer, (list, tuple)) else answer


def _key(value: Any) -> str:
    return normal(value) if isinstance(value, str) else repr(value)


def _grounding_flags(value: Any, span: Span | None, shown: _Shown) -> Iterator[Flag]:
    said = isinstance(value, (int, float)) if not isinstance(value, str) else bool(value.strip())
    if not said or isinstance(value, bool) or (span is not None and span.match != "fuzzy"):
        return
    if span is None:
        yield "ungrounded"
    if shown.has(value):
        yield "copied from an example"


def _without(data: Any, pointers: list[str], schema: dict[str, Any], schemas: LeafSchemas) -> Any:
    """The data without the values at these pointers, as far as the schema lets go of them."""
    valid = checker(schema).is_valid
    out = copy.deepcopy(data)
    for pointer in pointers:
        if not pointer:
            return None if valid(None) else out
        *way, last = map(unescape, pointer.split("/")[1:])
        holder = out
        for part in way:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        place: Any = int(last) if isinstance(holder, list) else last
        value = holder[place]
        holder[place] = None
        if valid(out):
            continue
        holder[place] = value
        if isinstance(holder, dict) and not any("default" in each for each in schemas.at(pointer)):
            members = dict(holder)
            del holder[place]
            if not valid(out):
                holder.clear()
                holder.update(members)
    return out
