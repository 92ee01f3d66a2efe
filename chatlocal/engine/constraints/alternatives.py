"""A schema made of parts (`$ref`, `allOf`, `anyOf`, `not`, `if`, dependencies) as a list of alternatives without parts.

The grammar backend combines parts too, and gives up on recursive ones. Written out, every alternative is one plain
schema: `allOf` merged, each option of an `anyOf` a case of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import prod
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
        self._known: dict[str, list[list[Leaf]]] = {}  # by the pointer of a definition

    def of(self, schema: Any, path: str) -> list[list[Leaf]]:
        """Alternatives, each a list of schemas without parts that hold together; none when no value is valid.

        UnsupportedSchema for a `not` or `if` whose opposite has no schema, and for too many alternatives.
        """
        if isinstance(schema, bool):
            return [[]] if schema else []
        own = {key: value for key, value in schema.items() if key in OWN}
        found: list[list[Leaf]] = [[own] if own else []]
        for keyword, options in self._parts(schema, path):
            found = [_together(left, right) for left in found for right in options]
            if len(found) > MAX_ALTERNATIVES:
                raise UnsupportedSchema(keyword, path, f"makes more than {MAX_ALTERNATIVES} cases here")
        return found

    def _parts(self, schema: dict[str, Any], path: str) -> Iterator[tuple[str, list[list[Leaf]]]]:
        if "$ref" in schema:
            pointer = self._refs.pointer(schema["$ref"], path)
            self._refs.check_cycle(pointer, path)
            if pointer not in self._known:
                self._known[pointer] = self.of(self._refs.target(pointer), pointer)
            yield "$ref", self._known[pointer]
        for place, child in enumerate(schema.get("allOf", ())):
            yield "allOf", self.of(child, f"{path}/allOf/{place}")
        if "anyOf" in schema:
            yield "anyOf", self._either(schema["anyOf"], f"{path}/anyOf")
        if "oneOf" in schema:
            yield "oneOf", self._either(self.one_of(schema["oneOf"], path), f"{path}/oneOf")
        if "not" in schema:
            yield "not", self.of(self._negated("not", schema["not"], path), f"{path}/not")
        if "if" in schema and ("then" in schema or "else" in schema):
            met = {"allOf": [schema["if"], schema.get("then", True)]}
            unmet = {"allOf": [self._negated("if", schema["if"], path), schema.get("else", True)]}
            yield "if", self._either([met, unmet], f"{path}/if")
        for keyword, trigger, need in _dependencies(schema):
            yield keyword, self._either([{"properties": {trigger: False}}, need], f"{path}/{keyword}")

    def _either(self, options: list[Any], path: str) -> list[list[Leaf]]:
        return [leaves for place, child in enumerate(options) for leaves in self.of(child, f"{path}/{place}")]

    def _negated(self, keyword: str, schema: Any, path: str) -> Any:
        opposite = self._opposite(schema, path)
        if opposite is None:
            raise UnsupportedSchema(keyword, path, "its opposite cannot be put as a grammar")
        return opposite

    def _opposite(self, schema: Any, path: str) -> Any:
        while isinstance(schema, dict) and list(meaningful(schema)) == ["$ref"]:
            pointer = self._refs.pointer(schema["$ref"], path)
            self._refs.check_cycle(pointer, path)
            schema = self._refs.target(pointer)
        return negate(meaningful(schema) if isinstance(schema, dict) else schema)

    def one_of(self, options: list[Any], path: str) -> list[Any]:
        """Options that exclude each other, as `anyOf` of them means `oneOf`: each but the others that it overlaps.

        Where an opposite has no schema, the options as they are, and `oneOf` is reported as left.
        """
        if self._overlap.tagged(options):
            return options
        rivals: list[list[Any]] = [[] for _ in options]
        overlapping = 0
        for left, right in combinations(range(len(options)), 2):
            if not self._never_both(options[left], options[right]):
                overlapping += 1
                if overlapping > MAX_ALTERNATIVES:
                    self._leave("oneOf", path)
                    return options
                rivals[left].append(self._opposite(options[right], path))
                rivals[right].append(self._opposite(options[left], path))
        cases = sum(prod(len(rival.get("anyOf", [1])) for rival in found if rival) for found in rivals)
        if cases > MAX_ALTERNATIVES or any(rival is None for found in rivals for rival in found):
            self._leave("oneOf", path)
            return options
        return [{"allOf": [option, *found]} if found else option for option, found in zip(options, rivals, strict=True)]

    def _never_both(self, left: Any, right: Any) -> bool:
        if self._overlap.disjoint(left, right):
            return True
        # Closed, each lacks a key that the other requires.
        return self._closed and self._lacks(left, right) and self._lacks(right, left)

    def _lacks(self, one: Any, other: Any) -> bool:
        ours, theirs = declared(one, self._refs, ""), declared(other, self._refs, "")
        only_object = isinstance(one, dict) and one.get("type") == "object"
        return only_object and ours.closable and not ours.explicit and bool(theirs.required - set(ours.names))


def _together(left: list[Leaf], right: list[Leaf]) -> list[Leaf]:
    """Both lists without what is in both: a definition that is reached in two ways."""
    known = set(map(id, left))
    return left + [leaf for leaf in right if id(leaf) not in known]


def _dependencies(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        for trigger, need in schema.get(keyword, {}).items():
            yield keyword, trigger, {"required": need} if isinstance(need, list) else need
