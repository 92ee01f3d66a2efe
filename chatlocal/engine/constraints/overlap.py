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
        ours, theirs = list(self._conjuncts(left)), list(self._conjuncts(right))
        if any(self._apart(one, other, depth) for one in ours for other in theirs):
            return True
        return self._common(ours) & self._common(theirs) == {"object"} and self._objects_apart(ours, theirs, depth)

    def tagged(self, options: list[Any]) -> bool:
        """Whether each option is an object with another value of a key that all require."""
        tags = [self._tags(option) for option in options]
        shared = set(tags[0]).intersection(*tags[1:]) if tags else set()
        return any(_distinct([values[name] for values in tags]) for name in shared)

    def _tags(self, option: Any) -> dict[str, list[Any]]:
        """The keys that an object requires and of which the values are listed."""
        conjuncts = list(self._conjuncts(option))
        if not any(schema.get("type") == "object" for schema in conjuncts):
            return {}
        required = _required(conjuncts)
        return {
            name: values
            for schema in conjuncts
            for name, child in schema.get("properties", {}).items()
            if name in required and isinstance(child, dict) and (values := finite(child)) is not None
        }

    def _apart(self, left: dict[str, Any], right: dict[str, Any], depth: int) -> bool:
        for one, other in ((left, right), (right, left)):
            values = finite(one)
            if values is not None and not any(self._valid(value, other) for value in values):
                return True
            for key in ("anyOf", "oneOf"):
                if key in one and all(self.disjoint(branch, other, depth - 1) for branch in one[key]):
                    return True
        return not _types(left) & _types(right) or _ranges_apart(left, right)

    def _objects_apart(self, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], depth: int) -> bool:
        for some, others in ((ours, theirs), (theirs, ours)):
            for name in _required(some):
                mine = [property_schema(one, name) for one in some]
                other = [property_schema(one, name) for one in others]
                if False in mine or False in other:
                    return True
                if name in _required(others) and self.disjoint({"allOf": mine}, {"allOf": other}, depth - 1):
                    return True
        return False

    def _common(self, conjuncts: list[dict[str, Any]]) -> frozenset[str]:
        return _ALL_TYPES.intersection(*map(_types, conjuncts))

    def _conjuncts(self, schema: Any) -> Iterator[dict[str, Any]]:
        """The schema and everything that must hold beside it."""
        if not isinstance(schema, dict):
            return
        yield schema
        for child in schema.get("allOf", ()):
            yield from self._conjuncts(child)
        if "$ref" in schema:
            yield from self._conjuncts(self._refs.target(self._refs.pointer(schema["$ref"], "")))


def _distinct(lists: list[list[Any]]) -> bool:
    """Whether no value is in two of the lists, all of texts and integers: JSON takes 1.0 for 1, and Python True."""
    values = [value for listed in lists for value in listed if type(value) in (str, int)]
    return len(values) == sum(map(len, lists)) and len(set(values)) == len(values)


def _required(conjuncts: list[dict[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(name for schema in conjuncts for name in schema.get("required", ()))


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
