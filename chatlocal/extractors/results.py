"""What an extraction gives: records, each value tied to the words it came from, with a confidence. No framework here.

Offsets count characters of the document as it was handed over (Python's str indices); an end is exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Match = Literal["exact", "normalised", "fuzzy"]
"""How a value was found in the text: character by character; but for case, white space, width and punctuation marks of
another kind; or nearly."""

Flag = Literal["ungrounded", "copied from an example", "low confidence"]
"""Why a person should look at a value. Of the first two the value stays as it is. A value of low confidence is null in
`data` where the schema takes null, or its key is left out where it may be absent without a default; elsewhere it stays
in `data`, as that is always valid. The field keeps what it was."""


@dataclass(frozen=True)
class Span:
    """Where a value stands in the document: text[start:end]."""

    start: int
    end: int
    match: Match
    score: float = 1.0
    """Likeness of value and text, 0 to 1; 1 where they are equal."""


@dataclass(frozen=True)
class Field:
    """A leaf of a record: what is no object and no list."""

    pointer: str
    """JSON pointer inside the record's data, such as "/owner/name"."""
    value: Any
    """As the model gave it, a JSON value."""
    span: Span | None = None
    confidence: float | None = None
    """Probability of the value among those that the grammar allowed, 0 to 1; None where it was not constrained."""
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class Record:
    """One record of a document."""

    data: Any
    """JSON value that the record's schema allows."""
    value: Any
    """An instance of the record's class; the same as `data` where the schema is a JSON Schema."""
    kind: str
    """Name of the class, or title of the schema ("record" where it has none)."""
    fields: tuple[Field, ...] = ()
    document: str | None = None
    """Id of the document."""
    start: int = 0
    end: int = 0
    """What the record was read from: from its first span to its last, else all that the model saw."""


@dataclass(frozen=True)
class Failure:
    """Something that went wrong, with the raw answer it concerns; nothing of it is lost."""

    error: str
    """Name of the exception, such as "OutputInvalid"."""
    message: str
    raw: str = ""
    start: int = 0
    end: int = 0
    """Which part of the document it concerns."""


@dataclass(frozen=True)
class Extraction:
    """All that was found in one text."""

    data: Any
    """JSON value of the whole schema: an object for one class, a list for list[Model] and for several classes; None
    where nothing valid came (`failures` says why)."""
    value: Any
    """The same with instances of the classes: Model, list[Model]; `data` itself for a JSON Schema."""
    records: tuple[Record, ...] = ()
    failures: tuple[Failure, ...] = ()
    raw: tuple[str, ...] = ()
    """Answers of the model, as they were written: one for each part of the text (and each try)."""
    document: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    """prompt_tokens, completion_tokens, cached_tokens, forwards: sums over the requests."""
