"""The shortest JSON texts that a schema's values can have, and the shortest texts of its strings.

They are suggestions: where parts hold together (`allOf`) or a pattern cannot be followed there is none, and one that
does not fit is passed over where it is tried. Schemas are those of `normalise`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from chatlocal.engine.constraints.formats import SHORTEST
from chatlocal.engine.constraints.references import unescape
from chatlocal.engine.constraints.regex_text import shortest_match

# Characters of a text that is still suggested.
_LONGEST = 4096
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def shortest_values(schema: dict[str, Any], separators: tuple[str, str]) -> list[str]:
    """A shortest JSON text for the schema itself, for each of its definitions and for what stands in them."""
    values = _Values(schema, separators)
    return list(dict.fromkeys(text for text in map(values.text, schemas_in(schema)) if text is not None))


def shortest_strings(schema: Any) -> Iterator[str]:
    """Short texts of the forms that a schema asks of strings."""
    for node in schemas_in(schema):
        text = _string(node)
        if text:
            yield text


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema of `normalise` and all schemas in it."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            yield node
            for key, child in node.items():
                if key in ("properties", "patternProperties", "$defs"):
                    waiting += child.values()
                elif key not in ("enum", "required", "type"):
                    waiting.append(child)


class _Values:
    def __init__(self, root: dict[str, Any], separators: tuple[str, str]) -> None:
        self._item, self._key = separators
        self._definitions: dict[str, Any] = root.get("$defs", {})
        self._known: dict[str, str] = {}
        # Definitions come after those that name them, so that backwards most are known when they are asked for; a
        # shorter text of one may make those before it shorter.
        shorter = True
        while shorter:
            shorter = False
            for name in reversed(self._definitions):
                text = self.text(self._definitions[name])
                if text is not None and len(text) < len(self._known.get(name, "?" * (_LONGEST + 1))):
                    self._known[name] = text
                    shorter = True

    def text(self, node: Any) -> str | None:
        """A shortest JSON text of a schema; None where none is known."""
        if not isinstance(node, dict):
            return None
        if "$ref" in node:
            return self._known.get(unescape(node["$ref"].removeprefix("#/$defs/")))
        if "anyOf" in node:
            return _shortest(map(self.text, node["anyOf"]))
        if "enum" in node:
            return _shortest(map(self._written, node["enum"]))
        if "allOf" in node:
            return None
        types = node.get("type", _TYPES)
        return _shortest(self._of_type(node, type) for type in ([types] if isinstance(types, str) else types))

    def _of_type(self, node: dict[str, Any], type: str) -> str | None:
        if type in ("integer", "number"):
            return _number(node, type)
        if type == "string":
            text = _string(node)
            return None if text is None else self._written(text)
        if type == "array":
            return self._array(node)
        if type == "object":
            return self._object(node)
        return "null" if type == "null" else "true"

    def _array(self, node: dict[str, Any]) -> str | None:
        least = node.get("minItems", 0)
        first = node.get("prefixItems", [])[:least]
        if 2 * least > _LONGEST:
            return None
        rest = self.text(node.get("items", {})) if least > len(first) else ""
        items = [*map(self.text, first), *[rest] * (least - len(first))]
        return None if None in items else f"[{self._item.join(filter(None, items))}]"

    def _object(self, node: dict[str, Any]) -> str | None:
        properties, required = node.get("properties", {}), node.get("required", [])
        wanted = {name: properties[name] for name in properties if name in required}
        wanted |= {name: self._of_key(node) for name in required if name not in wanted}
        for name in _keys(node):
            if len(wanted) >= node.get("minProperties", 0):
                break
            wanted.setdefault(name, self._of_key(node))
        if len(wanted) < node.get("minProperties", 0):
            return None
        texts = {name: self.text(child) for name, child in wanted.items()}
        if None in texts.values():
            return None
        return "{" + self._item.join(f"{self._written(name)}{self._key}{text}" for name, text in texts.items()) + "}"

    def _of_key(self, node: dict[str, Any]) -> Any:
        """The schema of a key that is not declared."""
        return next(iter(node.get("patternProperties", {}).values()), node.get("additionalProperties", {}))

    def _written(self, value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(self._item, self._key))


def _keys(node: dict[str, Any]) -> Iterator[str]:
    """Different names for keys that are not declared."""
    patterns = node.get("patternProperties", {})
    for length in range(min(node.get("minProperties", 0), _LONGEST)):
        name = shortest_match(next(iter(patterns)), length) if patterns else "a" * length
        if name is not None:
            yield name


def _string(node: dict[str, Any]) -> str | None:
    least: int = node.get("minLength", 0)
    if least > _LONGEST:
        return None
    if "pattern" in node:
        return shortest_match(node["pattern"], least)
    if "format" in node:
        return SHORTEST.get(str(node["format"]))
    return "a" * least


def _number(node: dict[str, Any], type: str) -> str | None:
    """The shortest of a few numbers at the bounds."""
    low = node.get("minimum", node.get("exclusiveMinimum", -math.inf))
    high = node.get("maximum", node.get("exclusiveMaximum", math.inf))
    step = Decimal(repr(node["multipleOf"])) if "multipleOf" in node else None
    tried = [Decimal(0), Decimal(1), Decimal(-1)]
    for bound in (low, high):
        if math.isfinite(bound):
            exact = Decimal(repr(bound))
            tried += [exact, Decimal(math.floor(bound)), Decimal(math.ceil(bound)), exact + 1, exact - 1]
            if step:
                tried += [exact // step * step + step * count for count in (-1, 0, 1)]
    texts = [
        format(number.normalize(), "f").replace("-0", "0") if number == 0 else format(number.normalize(), "f")
        for number in tried
        if low <= number <= high
        and number != node.get("exclusiveMinimum")
        and number != node.get("exclusiveMaximum")
        and not (step and number % step)
        and not (type == "integer" and number % 1)
    ]
    return _shortest(texts)


def _shortest(texts: Any) -> str | None:
    known = [text for text in texts if text is not None and len(text) <= _LONGEST]
    return min(known, key=len, default=None)
