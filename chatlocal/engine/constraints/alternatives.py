"""A schema made of parts (`$ref`, `allOf`, `anyOf`, `not`, `if`, dependencies) as a list of alternatives without parts.

The grammar backend combines parts too, and gives up on recursive ones. Written out, every alternative is one plain
schema: `allOf` merged, each option of an `anyOf` a case of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from chatlocal.engine.constraints.declared import declared
from chatlocal.engine.constraints.keywords import OWN, meaningful
from chatlocal.engine.constraints.negation import negate
from chatlocal.engine.constraints.overlap import Overlap
from chatlocal.engine.constraints.references import References
from chatlocal.engine.errors import UnsupportedSchema

MAX_ALTERNATIVES = 256

Leaf = dict[str, Any]


class Alternatives:
    """Expands schemas. `leave(keyword, path)` is told what the result does not enforce."""

    def __init__(self, refs: References, overlap: Overlap, closed: bool, leave: Callable[[str, str], None]) -> None:
        self._refs = refs
        self._overlap = overlap
        self._closed = closed
        self._leave = leave

    def of(self, schema: Any, path: str) -> list[list[Leaf]]:
        """Alternatives, each a list of schemas without parts that hold together; none when no value is valid.

        UnsupportedSchema for a `not` or `if` whose opposite has no schema, and for too many alternatives.
        """
        if isinstance(schema, bool):
            return [[]] if schema else []
        own = {key: value for key, value in schema.items() if key in OWN}
        found: list[list[Leaf]] = [[own] if own else []]
        for keyword, options in self._parts(schema, path):
            found = [left + right for left in found for right in options]
            if len(found) > MAX_ALTERNATIVES:
                raise UnsupportedSchema(keyword, path, f"makes more than {MAX_ALTERNATIVES} cases here")
        return found

    def _parts(self, schema: dict[str, Any], path: str) -> Iterator[tuple[str, list[list[Leaf]]]]:
        if "$ref" in schema:
            pointer = self._refs.pointer(schema["$ref"], path)
            self._refs.check_cycle(pointer, path)
            yield "$ref", self.of(self._refs.target(pointer), pointer)
        for place, child in enumerate(schema.get("allOf", ())):
            yield "allOf", self.of(child, f"{path}/allOf/{place}")
        for key in ("anyOf", "oneOf"):
            if key in schema:
                yield key, self._either(schema[key], f"{path}/{key}")
        self.check_one_of(schema, path)
        if "not" in schema:
            yield "not", self.of(self.opposite("not", schema["not"], path), f"{path}/not")
        if "if" in schema and ("then" in schema or "else" in schema):
            met = {"allOf": [schema["if"], schema.get("then", True)]}
            unmet = {"allOf": [self.opposite("if", schema["if"], path), schema.get("else", True)]}
            yield "if", self._either([met, unmet], f"{path}/if")
        for keyword, trigger, need in _dependencies(schema):
            yield keyword, self._either([{"properties": {trigger: False}}, need], f"{path}/{keyword}")

    def _either(self, options: list[Any], path: str) -> list[list[Leaf]]:
        return [leaves for place, child in enumerate(options) for leaves in self.of(child, f"{path}/{place}")]

    def opposite(self, keyword: str, schema: Any, path: str) -> Any:
        """The negated schema. UnsupportedSchema when it has none."""
        while isinstance(schema, dict) and list(schema) == ["$ref"]:
            pointer = self._refs.pointer(schema["$ref"], path)
            self._refs.check_cycle(pointer, path)
            schema = self._refs.target(pointer)
        opposite = negate(meaningful(schema) if isinstance(schema, dict) else schema)
        if opposite is None:
            raise UnsupportedSchema(keyword, path, "its opposite cannot be put as a grammar")
        return opposite

    def check_one_of(self, schema: dict[str, Any], path: str) -> None:
        """Report `oneOf` when two of its options may be valid at once: the grammar is that of `anyOf`."""
        if not all(self._never_both(left, right) for left, right in combinations(schema.get("oneOf", ()), 2)):
            self._leave("oneOf", path)

    def _never_both(self, left: Any, right: Any) -> bool:
        if self._overlap.disjoint(left, right):
            return True
        # Closed, each lacks a key that the other requires.
        return self._closed and self._lacks(left, right) and self._lacks(right, left)

    def _lacks(self, one: Any, other: Any) -> bool:
        ours, theirs = declared(one, self._refs, ""), declared(other, self._refs, "")
        only_object = isinstance(one, dict) and one.get("type") == "object"
        return only_object and ours.closable and not ours.explicit and bool(theirs.required - set(ours.names))


def _dependencies(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        for trigger, need in schema.get(keyword, {}).items():
            yield keyword, trigger, {"required": need} if isinstance(need, list) else need
