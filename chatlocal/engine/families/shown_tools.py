"""Tools as a model reads them: what a schema refers to stands in its place.

A model that is shown {"$ref": "#/$defs/Address"} has to look it up, and small ones do not. Schemas that come back to
themselves cannot be written out: those keep their definitions beside the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from chatlocal.engine.messages import Tool, read_tools

_PLACES = ("$defs", "definitions")
# The lists there are data, whatever they look like.
_DATA = frozenset({"enum", "const", "default", "examples"})
# Objects written before references are left as they are: definitions that use others twice double at each step.
_MOST = 2_000


def shown_tools(tools: Sequence[Tool | Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """The tools with their parameters written out. UnsupportedInput for what is no tool."""
    return tuple(replace(tool, parameters=written_out(tool.parameters)) for tool in read_tools(tools))


def written_out(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema without references, as far as it does not come back to itself or grow without measure.

    What stands beside a reference (a description) is kept, and goes before what the definition says of the same.
    """
    places = [place for place in _PLACES if isinstance(schema.get(place), dict)]
    definitions = {f"#/{place}/{name}": definition for place in places for name, definition in schema[place].items()}
    if not definitions:
        return schema
    writer = _Writer(definitions)
    try:
        written: dict[str, Any] = writer.written({key: value for key, value in schema.items() if key not in places})
    except RecursionError:  # definitions in a long chain: they are shown as they came
        return schema
    if writer.left - definitions.keys():
        return schema  # written in a way that only a resolver of references can follow
    kept = {place: _kept(schema, place, writer.left) for place in places}
    return {**written, **{place: definitions for place, definitions in kept.items() if definitions}}


class _Writer:
    """`left` are the references that stay."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.left: set[str] = set()
        self._definitions = definitions
        self._room = _MOST

    def written(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.written(item) for item in value]
        if not isinstance(value, dict):
            return value
        self._room -= 1
        target = value.get("$ref")
        if not isinstance(target, str):
            return {
                key: item if key in _DATA and isinstance(item, list) else self.written(item)
                for key, item in value.items()
            }
        beside = {key: self.written(item) for key, item in value.items() if key != "$ref"}
        definition = self._definitions.get(target)
        if not isinstance(definition, dict) or self._room < 0 or _comes_back(target, self._definitions):
            self.left.add(target)
            return {"$ref": target, **beside}
        return {**self.written(definition), **beside}


def _comes_back(target: str, definitions: Mapping[str, Any]) -> bool:
    """Whether a definition can be reached from itself."""
    reached: set[str] = set()
    open_targets = [target]
    while open_targets:
        for found in _targets(definitions.get(open_targets.pop())):
            if found == target:
                return True
            if found not in reached:
                reached.add(found)
                open_targets.append(found)
    return False


def _targets(value: Any) -> list[str]:
    if isinstance(value, list):
        return [target for item in value for target in _targets(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [target for item in value.values() for target in _targets(item)]


def _kept(schema: Mapping[str, Any], place: str, left: set[str]) -> dict[str, Any]:
    """The definitions that references are left to, and those that they need."""
    definitions: dict[str, Any] = schema.get(place) or {}
    wanted = [target for target in left if target.startswith(f"#/{place}/")]
    kept: dict[str, Any] = {}
    while wanted:
        name = wanted.pop().removeprefix(f"#/{place}/")
        if name in definitions and name not in kept:
            kept[name] = definitions[name]
            wanted += [target for target in _targets(definitions[name]) if target.startswith(f"#/{place}/")]
    return {name: kept[name] for name in definitions if name in kept}
