"""What a user asks for, as one JSON Schema of the answer, and the way back: records and instances of their classes.

Pydantic classes, list[Model], several classes at once and JSON Schemas come in; what follows knows only the JSON Schema
of the answer and where in it the records stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args, get_origin

from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from pydantic_core import to_jsonable_python

from chatlocal.engine.constraints import validation
from chatlocal.engine.constraints.references import escape
from chatlocal.engine.constraints.schema_source import is_v1_model, schema_of, type_adapter
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput

_TELLING = {"$ref", "allOf", "anyOf", "const", "enum", "items", "oneOf", "prefixItems", "properties", "type"}
_UNNAMED = "record"
_BOUNDS = ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains")


@dataclass(frozen=True)
class Kind:
    """One kind of record: its name, its JSON Schema with all definitions in it, and the class, None for a schema."""

    name: str
    schema: dict[str, Any]
    type: Any = None

    def build(self, data: Any) -> Any:
        """An instance of the class, or the data itself. OutputInvalid where they do not fit."""
        return validation.check(self.schema if self.type is None else self.type, json.dumps(data, ensure_ascii=False))


@dataclass(frozen=True)
class Placed:
    """A record's data, with the JSON pointer of where it stands in the answer."""

    kind: Kind
    pointer: str
    data: Any


@dataclass(frozen=True)
class RecordSchema:
    """`form` says how records stand in the answer: "one" is the answer, "many" are its items, "several" are the items
    of lists, one for each class under its name."""

    kinds: tuple[Kind, ...]
    form: str
    bounds: Mapping[str, Any] = field(default_factory=dict)
    """What a list of records must have besides, such as minItems."""

    @cached_property
    def answer(self) -> dict[str, Any]:
        """The JSON Schema of what the model writes."""
        if self.form == "one":
            return self.kinds[0].schema
        if self.form == "many":
            return {**_list_of(self.kinds[0].schema, "/items"), **self.bounds}
        lists = {kind.name: _list_of(kind.schema, f"/properties/{escape(kind.name)}/items") for kind in self.kinds}
        return {"type": "object", "properties": lists, "required": list(lists)}

    def placed(self, answer: Any) -> Iterator[Placed]:
        """The records of a whole answer, or of as much of it as is there."""
        if self.form == "one":
            yield Placed(self.kinds[0], "", answer)
        elif self.form == "many":
            yield from _items(self.kinds[0], answer, "")
        else:
            for kind in self.kinds:
                found = answer.get(kind.name) if isinstance(answer, dict) else None
                yield from _items(kind, found, f"/{escape(kind.name)}")

    def check(self, text: str) -> Any:
        """The JSON value of an answer that fits the schema and every class. OutputInvalid says what does not."""
        value = validation.check(self.answer, text)
        for record in self.placed(value):
            try:
                record.kind.build(record.data)
            except OutputInvalid as problem:
                where = f"{record.pointer}: " if record.pointer else ""
                raise OutputInvalid(f"{where}{problem}", text) from problem
        return value

    def answer_of(self, given: Any) -> Any:
        """What a user gives as the right answer - instances, dicts, a list of them - as the model would write it."""
        if self.form == "one":
            return _plain(given)
        records = list(given) if isinstance(given, (list, tuple)) else [given]
        if self.form == "many":
            return [_plain(record) for record in records]
        if isinstance(given, Mapping) and set(given) <= {kind.name for kind in self.kinds}:
            return {kind.name: [_plain(record) for record in given.get(kind.name, ())] for kind in self.kinds}
        unknown = [record for record in records if not any(_is_of(record, kind) for kind in self.kinds)]
        if unknown:
            raise UnsupportedInput(
                f"An example's record must be an instance of one of the classes, got {unknown[0]!r:.80}."
            )
        return {kind.name: [_plain(record) for record in records if _is_of(record, kind)] for kind in self.kinds}

    def shown(self, answer: Any) -> Any:
        """An answer that is still growing, as `gathered` would give it."""
        return [record.data for record in self.placed(answer)] if self.form == "several" else answer

    def gathered(self, records: Sequence[Any]) -> Any:
        """Of all records' data or values what `Extraction` holds: the one, or the list."""
        return (records[0] if records else None) if self.form == "one" else list(records)


def read_record_schema(schema: Any) -> RecordSchema:
    """A Pydantic class (or another type of a record), list[Model], a list or tuple of several classes, a JSON Schema.

    UnsupportedInput for what is none of them.
    """
    if isinstance(schema, Mapping):
        _check(schema)
        return _of_json_schema(dict(schema))
    if isinstance(schema, (list, tuple)):
        kinds = tuple(_kind(one) for one in schema)
        names = [kind.name for kind in kinds]
        if not kinds:
            raise UnsupportedInput("There is no class to extract: give at least one.")
        if len(set(names)) < len(names):
            raise UnsupportedInput(f"Two of the classes have one name, and records are told apart by it: {names}.")
        return RecordSchema(kinds, "several")
    if get_origin(schema) in (list, Sequence, tuple) and get_args(schema):
        return RecordSchema((_kind(get_args(schema)[0]),), "many")
    return RecordSchema((_kind(schema),), "one")


def _check(schema: Mapping[str, Any]) -> None:
    """UnsupportedInput for what is no JSON Schema, or says nothing of what is to be extracted."""
    try:
        validator_for(schema).check_schema(dict(schema))
    except SchemaError as problem:
        raise UnsupportedInput(f"This is no JSON Schema, at {problem.json_path}: {problem.message}") from problem
    if not _TELLING & set(schema):
        raise UnsupportedInput(
            f"This schema has none of {', '.join(sorted(_TELLING))}, so anything would do: name the fields of a record"
            ' under "properties".'
        )


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, by_alias=True)


def _is_of(record: Any, kind: Kind) -> bool:
    return isinstance(kind.type, type) and isinstance(record, kind.type)


def _kind(kind: Any) -> Kind:
    if isinstance(kind, Mapping):
        return Kind(str(kind.get("title") or _UNNAMED), dict(kind))
    if not is_v1_model(kind):
        type_adapter(kind)  # refuses what is no type
    return Kind(getattr(kind, "__name__", _UNNAMED), schema_of(kind), kind)


def _of_json_schema(schema: dict[str, Any]) -> RecordSchema:
    items = schema.get("items")
    if schema.get("type") != "array" or not isinstance(items, Mapping) or "prefixItems" in schema:
        return RecordSchema((_kind(schema),), "one")
    shared = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    bounds = {key: schema[key] for key in _BOUNDS if key in schema}
    return RecordSchema((_kind({**shared, **_named(items, schema)}),), "many", bounds)


def _named(items: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an item under a name: its own, else that of the definition behind it, else the list's."""
    reference = str(items.get("$ref") or "")
    named = reference.rpartition("/")[2]
    title = items.get("title") or named or root.get("title")
    return {**({"title": title} if title else {}), **items}


def within(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a schema as a schema of its own: what its references mean stays what it is."""
    if '"$ref"' not in json.dumps(schema):
        return dict(schema)
    place = "/$defs/root"
    return {**_moved(schema, place), "$defs": {"root": _moved(root, place)}}


def _list_of(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A list of records; the record's definitions stay inside of it, and its references are told where they are now."""
    return {"type": "array", "items": _moved(schema, place)}


def _moved(schema: Any, place: str) -> Any:
    if isinstance(schema, list):
        return [_moved(child, place) for child in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = {key: _moved(child, place) for key, child in schema.items()}
    reference = out.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        out["$ref"] = f"#{place}{reference[1:]}"
    return out


def _items(kind: Kind, value: Any, pointer: str) -> Iterator[Placed]:
    for number, data in enumerate(value if isinstance(value, list) else ()):
        yield Placed(kind, f"{pointer}/{number}", data)
