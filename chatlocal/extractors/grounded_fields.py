"""Which fields must be words of the text: a JSON Schema with the keyword for it at their strings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from chatlocal.engine.constraints.keywords import SPAN
from chatlocal.engine.constraints.references import References, escape
from chatlocal.engine.errors import UnsupportedInput

# Strings with these have another form already; objects with those are held to it by the grammar's own reader.
_OTHER_FORMS = ("enum", "const", "pattern", "format", SPAN)
_OTHER_OBJECTS = ("patternProperties", "minProperties", "maxProperties")


def demand_spans(schema: dict[str, Any], fields: bool | Sequence[str]) -> dict[str, Any]:
    """The schema, in which the strings of these fields must be spans of a text; `True` for every string.

    A field is named as it stands in the schema, or with those around it: "name", "owner.name". All strings in it are
    meant, but those of a form of their own (an enum, a pattern, a date). UnsupportedInput for a field that is not there
    or has no string that can be held to a text.
    """
    if fields is False:
        return schema
    return _Writer(schema, () if fields is True else (fields,) if isinstance(fields, str) else tuple(fields)).run()


class _Writer:
    """Definitions are copied for each of their uses: what one field demands is not demanded of others."""

    def __init__(self, root: dict[str, Any], fields: tuple[str, ...]) -> None:
        self._root = root
        self._refs = References(root)
        self._fields = [field.split(".") for field in fields]
        self._deepest = max(map(len, self._fields), default=0)
        self._seen: set[str] = set()
        self._met: set[int] = set()  # of self._fields
        self._held: set[int] = set()
        self._copies: dict[str, Any] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def run(self) -> dict[str, Any]:
        written: dict[str, Any] = self._node(self._root, (), frozenset() if self._fields else frozenset({-1}))
        for place, field in enumerate(self._fields):
            name = ".".join(field)
            if place not in self._met:
                raise UnsupportedInput(
                    f"There is no field {name!r} to ground; fields are {', '.join(sorted(self._seen))}."
                )
            if place not in self._held:
                raise UnsupportedInput(
                    f"The field {name!r} cannot be held to the text: it has no string, or one with a form of its own."
                )
        return {**written, "$defs": {**written.get("$defs", {}), **self._copies}} if self._copies else written

    def _node(self, node: Any, path: tuple[str, ...], wanted: frozenset[int]) -> Any:
        """A schema rewritten; `wanted` are the fields in which it stands, -1 for all of them."""
        if not isinstance(node, dict):
            return node
        out = dict(node)
        if "$ref" in node:
            out["$ref"] = f"#/$defs/{escape(self._copy(node['$ref'], path, wanted))}"
        for key in ("anyOf", "oneOf", "allOf", "prefixItems", "items", "additionalItems", "additionalProperties"):
            if any(keyword in node for keyword in _OTHER_OBJECTS) and key == "additionalProperties":
                continue
            child = node.get(key)
            if isinstance(child, list):
                out[key] = [self._node(each, path, wanted) for each in child]
            elif isinstance(child, dict):
                out[key] = self._node(child, path, wanted)
        if isinstance(node.get("properties"), dict) and not any(keyword in node for keyword in _OTHER_OBJECTS):
            out["properties"] = {
                name: self._node(child, *self._inside(path, name, wanted)) for name, child in node["properties"].items()
            }
        types = node.get("type")
        if wanted and (types == "string" or (isinstance(types, list) and "string" in types)):
            if not any(keyword in node for keyword in _OTHER_FORMS):
                out[SPAN] = True
            if out.get(SPAN):
                self._held |= wanted
        return out

    def _inside(
        self, path: tuple[str, ...], name: str, wanted: frozenset[int]
    ) -> tuple[tuple[str, ...], frozenset[int]]:
        self._seen.add(name)
        path = (*path, name)[-max(self._deepest, 1) :]
        met = {place for place, field in enumerate(self._fields) if list(path[-len(field) :]) == field}
        self._met |= met
        return path, wanted | met

    def _copy(self, reference: str, path: tuple[str, ...], wanted: frozenset[int]) -> str:
        """The name of a definition's copy for this use."""
        pointer = self._refs.pointer(reference, "")
        key = (pointer, path if self._deepest > 1 else (), wanted)
        if key not in self._names:
            name = pointer.rpartition("/")[2] or "root"
            self._names[key] = f"{name}-{len(self._names)}"
            self._copies[self._names[key]] = self._node(self._refs.target(pointer), path, wanted)
        return self._names[key]


def demands_spans(schema: Any) -> bool:
    """Whether a schema has the keyword anywhere, so that its spec needs the text."""
    return f'"{SPAN}"' in json.dumps(schema)
