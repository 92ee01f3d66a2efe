"""Whether two schemas can be valid for one value: what `oneOf` needs to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chatlocal.engine.constraints.references import References

_ALL_TYPES = frozenset({"null", "boolean", "object", "array", "string", "integer", "number"})


class Overlap:
    """Proves that schemas exclude each other. It never claims that they do where they do not."""

    def __init__(self, refs: References, valid: Callable[[Any, Any], bool]) -> None:
        """`valid(value, schema)` says whether a value is valid for a subschema."""
        self._refs = refs
        self._valid = valid

    def disjoint(self, left: Any, right: Any, depth: int = 8) -> bool:
        """True when no value is valid for both."""
        if left is False or right is False:
            return True
        if depth == 0:
            return False
        return any(self._apart(one, other, depth) for one in self._conjuncts(left) for other in self._conjuncts(right))

    def _apart(self, left: dict[str, Any], right: dict[str, Any], depth: int) -> bool:
        for one, other in ((left, right), (right, left)):
            values = finite(one)
            if values is not None and not any(self._valid(value, other) for value in values):
                return True
            for key in ("anyOf", "oneOf"):
                if key in one and all(self.disjoint(branch, other, depth - 1) for branch in one[key]):
                    return True
        return (
            not _types(left) & _types(right)
            or _ranges_apart(left, right)
            or (_types(left) & _types(right) == {"object"} and self._objects_apart(left, right, depth))
        )

    def _objects_apart(self, left: dict[str, Any], right: dict[str, Any], depth: int) -> bool:
        for one, other in ((left, right), (right, left)):
            for name in one.get("required", ()):
                theirs = property_schema(other, name)
                ours = property_schema(one, name)
                if theirs is False or ours is False:
                    return True
                if name in other.get("required", ()) and self.disjoint(ours, theirs, depth - 1):
                    return True
        return False

    def _conjuncts(self, schema: Any) -> Iterator[dict[str, Any]]:
        """The schema and everything that must hold beside it."""
        if not isinstance(schema, dict):
            return
        yield schema
        for child in schema.get("allOf", ()):
            yield from self._conjuncts(child)
        if "$ref" in schema:
            yield from self._conjuncts(self._refs.target(self._refs.pointer(schema["$ref"], "")))


def finite(schema: dict[str, Any]) -> list[Any] | None:
    """The values of enum or const; None when there is neither."""
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if "enum" in schema else None


def property_schema(schema: dict[str, Any], name: str) -> Any:
    """What an object says about one of its keys, patternProperties left aside: True when it says nothing."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    if schema.get("patternProperties"):
        return True
    return schema.get("additionalProperties", True)


def _types(schema: dict[str, Any]) -> frozenset[str]:
    types = schema.get("type", _ALL_TYPES)
    named = frozenset([types] if isinstance(types, str) else types)
    return named | {"integer"} if "number" in named else named


def _ranges_apart(left: dict[str, Any], right: dict[str, Any]) -> bool:
    if not (_types(left) & _types(right)) <= {"integer", "number"}:
        return False
    for one, other in ((left, right), (right, left)):
        top, bottom = one.get("maximum"), other.get("minimum")
        if top is not None and bottom is not None and top < bottom:
            return True
    return False
