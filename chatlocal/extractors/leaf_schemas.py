"""Which parts of a JSON Schema speak of the value at a JSON pointer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from chatlocal.engine.constraints.references import References, unescape

# Parts in parts that are followed; a definition that means itself would go on for ever.
_DEEPEST = 32


class LeafSchemas:
    """Finds the schemas in `root`, which has all its definitions in it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._refs = References(root)
        self.at = lru_cache(maxsize=4096)(self._at)

    def _at(self, pointer: str) -> tuple[dict[str, Any], ...]:
        """All that may speak of the value there: the schemas of every alternative, and what they are made of."""
        found = list(self._together(self._root))
        for part in pointer.split("/")[1:]:
            below = [child for schema in found for child in _below(schema, unescape(part))]
            found = [schema for child in below for schema in self._together(child)]
        return tuple(found)

    def _together(self, schema: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return
        yield schema
        parts = [child for keyword in ("anyOf", "oneOf", "allOf") for child in schema.get(keyword, ())]
        parts += [schema[keyword] for keyword in ("then", "else") if keyword in schema]
        if "$ref" in schema:
            parts.append(self._refs.target(self._refs.pointer(schema["$ref"], "")))
        for child in parts:
            yield from self._together(child, depth + 1)


def _below(schema: dict[str, Any], part: str) -> Iterator[Any]:
    """The schemas for a key of an object, or a place in an array."""
    properties = schema.get("properties", {})
    yield properties[part] if part in properties else schema.get("additionalProperties")
    yield from schema.get("patternProperties", {}).values()
    if part.isdigit():
        items = schema.get("items")
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        yield first[int(part)] if int(part) < len(first) else rest
