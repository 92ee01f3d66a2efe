"""What a text may be: a small frozen value that can be hashed, pickled and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from chatlocal.engine.constraints.schema_source import schema_of
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema

KINDS = ("json_schema", "regex", "choice", "grammar")


@dataclass(frozen=True, slots=True)
class Spec:
    """One constraint before it is compiled.

    `source` is a JSON Schema, a list of strings (choice), both as JSON text, or the regex or Lark grammar itself.
    `closed` and `separators` (between items, after keys) matter to JSON Schema only.
    """

    kind: str
    source: str
    closed: bool = True
    separators: tuple[str, str] = (", ", ": ")

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnsupportedInput(f"Unknown kind of constraint {self.kind!r}: use one of {', '.join(KINDS)}.")
        object.__setattr__(self, "separators", tuple(self.separators))

    def to_json(self) -> str:
        """The spec as JSON text; `from_json` gives an equal one back."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def json_schema(schema_or_type: Any, *, closed: bool = True, separators: tuple[str, str] = (", ", ": ")) -> Spec:
    """A JSON document for a JSON Schema (draft 7 to 2020-12) or for a Python type that Pydantic understands.

    Types: Pydantic models (v2 and pydantic.v1), dataclasses, TypedDict, Enum, Literal, list[...] and the like.
    Keys come in declared order and there is no white space but the separators'. `closed` keeps undeclared keys out of
    objects that declare `properties` and say nothing about others; False keeps the schema's own meaning.
    UnsupportedInput for anything else.
    """
    item, key = separators
    if item.strip(" \t\r\n") != "," or key.strip(" \t\r\n") != ":":
        raise UnsupportedInput(f"Separators are a comma and a colon, white space around them, got {separators!r}.")
    try:
        source = json.dumps(schema_of(schema_or_type), ensure_ascii=False)
    except RecursionError:
        raise UnsupportedSchema("depth", "", "the schema is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise UnsupportedInput(f"The schema cannot be written as JSON: {error}") from error
    return Spec("json_schema", source, closed, (item, key))


def regex(pattern: str) -> Spec:
    """A text that the whole pattern matches, in the dialect of Rust's regex crate: no look-around, no back-references.

    `^` at the start and `$` at the end are taken for granted; the null character never matches.
    """
    if not isinstance(pattern, str):
        raise UnsupportedInput(f"regex takes a pattern as text, got {type(pattern).__name__}.")
    return Spec("regex", pattern)


def choice(values: Iterable[str]) -> Spec:
    """One of these texts, as it stands. UnsupportedInput for none, for an empty text or for one that is not text."""
    listed = [values] if isinstance(values, str) else list(values)
    if not listed or any(not isinstance(value, str) or not value for value in listed):
        raise UnsupportedInput(f"choice takes one or more texts that are not empty, got {listed!r}.")
    if any("\ud800" <= character <= "\udfff" for value in listed for character in value):
        raise UnsupportedInput(f"choice takes texts that can be written as UTF-8, got {listed!r}.")
    return Spec("choice", json.dumps(list(dict.fromkeys(listed)), ensure_ascii=False))


def grammar(lark: str) -> Spec:
    """A text of a context-free grammar in llguidance's Lark syntax; the rule `start` is where it begins."""
    if not isinstance(lark, str) or not lark.strip():
        raise UnsupportedInput("grammar takes the text of a Lark grammar.")
    return Spec("grammar", lark)
