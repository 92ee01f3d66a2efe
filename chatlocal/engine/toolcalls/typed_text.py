"""Values that are written as plain text, read by the JSON Schema of the parameter that they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlocal.engine.toolcalls.json_text import loaded, read_value
from chatlocal.engine.toolcalls.python_text import read_literal
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import as_json

_EVERY = frozenset(("string", "number", "integer", "boolean", "null", "array", "object"))
_PYTHON_WORDS = ("True", "False", "None")
_DEEPEST = 16  # schemas in schemas: references may go round


def typed(text: str, parameters: dict[str, Any], name: str) -> str:
    """The value of a parameter as JSON. `parameters` is the JSON Schema of them all, empty where it is not known.

    What can only be a string stays text, and what can be none is read as JSON, or else as a Python literal. What can be
    both is read as JSON where that gives another type that the schema allows; a text in quotes stays as it is. What is
    not known counts as both. What cannot be read as what it should be is a string, for the caller of the tool to see.
    """
    kinds = kinds_allowed(_schema(parameters, name), parameters, 0)
    # Python's names of constants may well be text.
    stays = kinds == {"string"} or ("string" in kinds and text.strip() in _PYTHON_WORDS)
    read = None if stays else _whole(text, lambda source, give: read_value(source, (), give))
    if read is None and "string" not in kinds:
        read = _whole(text, read_literal)
    if read is None or ("string" in kinds and not _kinds_of(loaded(read)) & (kinds - {"string"})):
        return as_json(text)
    return read


def _whole(text: str, reader: Callable[[Source, Callable[[str], None]], Reading[bool]]) -> str | None:
    """A text read from its beginning to its end as one value, as JSON; None when it is none."""
    source = Source()
    source.append(text.strip())
    source.end()
    pieces: list[str] = []
    whole = _result(reader(source, pieces.append))
    read = "".join(pieces)
    return read if whole and not source.waiting and (read == "null" or loaded(read) is not None) else None


def _result(reading: Reading[bool]) -> bool:
    """What a reader returns when all of its text is there, so that it does not wait."""
    while True:
        try:
            next(reading)
        except StopIteration as done:
            return bool(done.value)


def _schema(parameters: dict[str, Any], name: str) -> Any:
    properties = parameters.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return parameters.get("additionalProperties")


def _kinds_of(value: object) -> set[str]:
    """The types of a JSON value."""
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    if value is None:
        return {"null"}
    return {"string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"}


def kinds_allowed(schema: Any, root: dict[str, Any], depth: int) -> frozenset[str]:
    """The types that a schema allows; every one where it does not say."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return _EVERY
    kinds = _EVERY
    named = schema.get("type")
    if isinstance(named, str):
        named = [named]
    if isinstance(named, list):
        kinds &= {kind for kind in named if isinstance(kind, str)}
    if isinstance(values := schema.get("enum"), list):
        kinds &= set().union(*map(_kinds_of, values))
    if "const" in schema:
        kinds &= _kinds_of(schema["const"])
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list) and options:
            kinds &= frozenset().union(*(kinds_allowed(option, root, depth + 1) for option in options))
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            kinds &= kinds_allowed(part, root, depth + 1)
    if isinstance(reference := schema.get("$ref"), str):
        kinds &= kinds_allowed(referred(root, reference), root, depth + 1)
    return kinds | {"null"} if schema.get("nullable") is True else kinds


def referred(root: Any, reference: str) -> Any:
    """What a reference inside of the same document refers to, None when it is not found."""
    place = root
    for part in reference.removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        place = place.get(part) if isinstance(place, dict) else None
    return place if reference.startswith("#") else None
