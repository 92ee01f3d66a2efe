"""What a text may be: a small frozen value that can be hashed, pickled and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from chatlocal.engine.constraints.limits import Limits
from chatlocal.engine.constraints.schema_source import schema_of
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema

KINDS = ("json_schema", "regex", "choice", "grammar", "marked", "either", "free_text", "thinking")


@dataclass(frozen=True, slots=True)
class Spec:
    """One constraint before it is compiled.

    `source` is a JSON Schema or a list of strings (choice) as JSON text, the regex or Lark grammar itself, or what the
    function of this kind's name puts together. `closed`, `separators` (between items, after keys), `text` matter to
    JSON Schema only, `limits` to JSON Schema and to marked grammars.
    """

    kind: str
    source: str
    closed: bool = True
    separators: tuple[str, str] = (", ", ": ")
    limits: Limits | None = None
    text: str | None = None

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
        return inner(json.loads(text))


def json_schema(
    schema_or_type: Any,
    *,
    closed: bool = True,
    separators: tuple[str, str] = (", ", ": "),
    limits: Limits | None = None,
    text: str | None = None,
) -> Spec:
    """A JSON document for a JSON Schema (draft 7 to 2020-12) or for a Python type that Pydantic understands.

    Types: Pydantic models (v2 and pydantic.v1), dataclasses, TypedDict, Enum, Literal, list[...] and the like.
    Keys come in declared order and there is no white space but the separators'. `closed` keeps undeclared keys out of
    objects that declare `properties` and say nothing about others; False keeps the schema's own meaning. `limits` end
    what a model writes without end; None leaves them to whoever asks the model (the engine has `Limits()`), and
    `Limits(None, None, None)` are none. A string whose schema has `"x-span": true` is a span of `text`, whole words of
    it; with `"x-span": "characters"` it may begin and end within words. UnsupportedInput for anything else.
    """
    item, key = separators
    if item.strip(" \t\r\n") != "," or key.strip(" \t\r\n") != ":":
        raise UnsupportedInput(f"Separators are a comma and a colon, white space around them, got {separators!r}.")
    if limits is not None and not isinstance(limits, Limits):
        raise UnsupportedInput(f"limits takes Limits(characters=..., items=..., repeats=...), got {limits!r}.")
    if text is not None:
        _check_text(text)
    return Spec("json_schema", _json(schema_of(schema_or_type)), closed, (item, key), limits, text)


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


def marked(
    lark: str,
    marks: Mapping[str, str],
    schemas: Mapping[str, Any],
    left: Iterable[str] = (),
    closings: Iterable[str] = (),
    limits: Limits | None = None,
) -> Spec:
    """A Lark grammar that uses control tokens and JSON Schemas by the names of rules.

    `marks` are names of rules with the control tokens they stand for; a tokenizer without such a token spells them as
    text. `schemas` are names of rules with JSON Schemas, as `json_schema` takes them. `left` names what the grammar's
    writer leaves to validation, `closings` are texts or marks that end free texts in it. `limits` as in `json_schema`.
    """
    rules = {"lark": lark, "marks": dict(marks), "schemas": dict(schemas)}
    return Spec("marked", _json({**rules, "left": list(left), "closings": list(closings)}), limits=limits)


def either(*specs: Spec) -> Spec:
    """A text that follows one of these specs."""
    return specs[0] if len(specs) == 1 else Spec("either", _json([asdict(spec) for spec in specs]))


@dataclass(frozen=True, slots=True)
class Opening:
    """A marker in a free text, and what must follow it.

    `place`: the marker counts "anywhere", behind nothing but white space on its "line", or behind nothing but white
    space at the "start" of the text.
    """

    marker: str
    spec: Spec
    place: Literal["anywhere", "line", "start"] = "anywhere"


def free_text(*openings: Opening, required: bool = False) -> Spec:
    """Any text, control tokens included, up to the first marker of an opening; constrained from there to its end.

    `required`: the text does not end before a marker. A marker is found as a control token or spelled out.
    """
    listed = [{"marker": each.marker, "place": each.place, "spec": asdict(each.spec)} for each in openings]
    return Spec("free_text", _json({"openings": listed, "required": required}))


def after(markers: str | Iterable[str], spec: Spec) -> Spec:
    """Free text until a marker, the spec from there on: what a model thinks before `</think>`, say."""
    listed = [markers] if isinstance(markers, str) else list(markers)
    if not listed or any(not isinstance(marker, str) or not marker for marker in listed):
        raise UnsupportedInput(f"after takes one or more markers that are not empty, got {listed!r}.")
    return free_text(*(Opening(marker, spec) for marker in listed), required=True)


def thinking(spec: Spec, opening: str, closing: str, *, open: bool, limit: int | None = None) -> Spec:
    """The spec behind the model's thinking, which is free text between two marks; blank lines may follow it.

    `open`: the thinking has begun already. Otherwise it is the model's choice whether it thinks first, where `opening`
    is one token of its vocabulary or the spec is a free text. `limit` is how many tokens the thinking may have, its
    marks not counted; then it is closed.
    """
    marks = {"opening": opening, "closing": closing, "open": open}
    return Spec("thinking", _json({"spec": asdict(spec), **marks, "limit": limit}))


def inner(fields: Mapping[str, Any]) -> Spec:
    """A spec that stands in the source of another one."""
    limits = fields.get("limits")
    return Spec(**{**fields, "limits": None if limits is None else Limits(**limits)})


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        raise UnsupportedInput(f"text takes the text that values are spans of, got {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedInput(f"text takes what can be written as UTF-8, got half a character: {error}.") from error


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise UnsupportedSchema("depth", "", "the schema is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise UnsupportedInput(f"The schema cannot be written as JSON: {error}") from error
