"""A JSON Schema as users write it, turned into one that the grammar backend can enforce.

Undeclared keys are kept out where asked, formats become patterns, parts become alternatives, references are gathered
under "$defs". What no grammar can say but a check of the finished text can (`uniqueItems`, unknown formats,
overlapping `oneOf`) is taken out and reported; the rest is refused.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints import object_keys
from chatlocal.engine.constraints.alternatives import Alternatives
from chatlocal.engine.constraints.declared import Declared, declared
from chatlocal.engine.constraints.drafts import checker, ref_stands_alone
from chatlocal.engine.constraints.formats import ANY_TEXT, ENFORCED, PATTERNS
from chatlocal.engine.constraints.keywords import PARTS, SPAN, bare, left_in, meaningful
from chatlocal.engine.constraints.merging import draft4_bounds, merge, tuple_items, without_repeats
from chatlocal.engine.constraints.number_bounds import bounds, step
from chatlocal.engine.constraints.overlap import Overlap, finite
from chatlocal.engine.constraints.patterns import translate
from chatlocal.engine.constraints.references import References, escape
from chatlocal.engine.errors import UnsupportedSchema

# The backend counts characters in 32 bits.
MAX_LENGTH = 2**32 - 1

_REFUSED = {
    "contains": "give prefixItems, or check it after generation",
    "unevaluatedItems": "use items or prefixItems",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
}
_AS_IT_IS = ("type", "minLength", "maxLength", "minItems", "maxItems", "required")


@dataclass(frozen=True, slots=True)
class Normalised:
    """`left_to_validation` names what the schema says and the grammar does not enforce: "uniqueItems at /tags"."""

    schema: dict[str, Any]
    left_to_validation: tuple[str, ...]


def normalise(schema: Any, *, closed: bool, spans: bool = False) -> Normalised:
    """UnsupportedSchema, with keyword and path, for what can be neither enforced nor left to validation.

    `spans`: there is a text, and strings may have to be spans of it.
    """
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    try:
        return _Normaliser(schema, closed, spans).run()
    except RecursionError:
        raise UnsupportedSchema("depth", "", "the schema is nested too deeply") from None


class _Normaliser:
    def __init__(self, root: dict[str, Any], closed: bool, spans: bool) -> None:
        self._spans = spans
        self._checker = checker(root)
        self._root = bare(root, lone_refs=ref_stands_alone(self._checker))
        self._refs = References(self._root)
        self._closed = closed
        self._alternatives = Alternatives(self._refs, Overlap(self._refs, self._valid), closed, self._leave)
        self._left: dict[str, None] = {}
        for what, path in left_in(root, ""):
            self._leave(what, path)
        self._definitions: dict[str, Any] = {}
        self._names: dict[str, str] = {}  # a pointer, or the text of a schema with parts -> its name in "$defs"
        self._to_define: deque[tuple[str, Any, str]] = deque()

    def run(self) -> Normalised:
        top = self._node(self._root, "")
        while self._to_define:
            name, schema, path = self._to_define.popleft()
            self._definitions[name] = self._define(schema, path)
        if top is False:
            raise UnsupportedSchema("enum" if "enum" in self._root else "not", "", "no value is valid")
        return Normalised({**top, "$defs": self._definitions} if self._definitions else top, tuple(self._left))

    def _node(self, schema: Any, path: str) -> Any:
        """One schema rewritten: a dict, or False when no value is valid."""
        if isinstance(schema, bool):
            return {} if schema else False
        schema = meaningful(schema)
        for keyword, advice in _REFUSED.items():
            if keyword in schema and not (keyword == "contains" and schema.get("minContains") == 0):
                raise UnsupportedSchema(keyword, path, f"no grammar can enforce it: {advice}")
        if list(schema) == ["$ref"]:
            pointer = self._refs.pointer(schema["$ref"], path)
            self._refs.check_cycle(pointer, path)
            return self._defined(pointer, self._refs.target(pointer), pointer)
        if list(schema) == ["allOf"] and len(schema["allOf"]) == 1:
            return self._node(schema["allOf"][0], f"{path}/allOf/0")
        if list(schema) in (["anyOf"], ["oneOf"]):
            ((keyword, options),) = schema.items()
            if keyword == "oneOf":
                options = self._alternatives.one_of(options, path)
            return _any([self._node(child, f"{path}/{keyword}/{place}") for place, child in enumerate(options)])
        if _has_parts(schema):
            text = json.dumps(schema, sort_keys=True)
            # Under a name, a part that comes back to itself through its properties is met again and not expanded again.
            return self._defined(text, schema, path) if '"$ref"' in text else self._combined(schema, path)
        return self._plain([schema], declared(schema, self._refs, path), path)

    def _defined(self, key: str, schema: Any, path: str) -> Any:
        if key not in self._names:
            name = path.rsplit("/", 1)[-1] or "root"
            self._names[key] = name if name not in self._names.values() else f"{name}-{len(self._names)}"
            self._to_define.append((self._names[key], schema, path))
        return {"$ref": f"#/$defs/{escape(self._names[key])}"}

    def _define(self, schema: Any, path: str) -> Any:
        schema = meaningful(schema) if isinstance(schema, dict) else schema
        return self._combined(schema, path) if _has_parts(schema) else self._node(schema, path)

    def _combined(self, schema: dict[str, Any], path: str) -> Any:
        """A schema with parts beside other keywords."""
        names = declared(schema, self._refs, path)
        nodes = []
        for leaves in self._alternatives.of(schema, path):
            others = schema.get("unevaluatedProperties", True)
            if others is not True:
                check_evaluated(schema, path)
            nodes.append(self._plain(leaves, names, path, others))
        return _any(nodes)

    def _plain(self, leaves: list[dict[str, Any]], names: Declared, path: str, others: Any = True) -> Any:
        """Schemas without parts that hold together, rewritten as one.

        `names` are those of the whole schema; `others` is for keys that none of the schemas speaks of.
        """
        listing = next((leaf for leaf in leaves if finite(leaf) is not None), None)
        if listing is not None:
            for leaf in leaves:
                self._span(leaf, path, beside=listing)
            values = self._fitting(listing, [leaf for leaf in leaves if leaf is not listing])
            return {"enum": values} if values else False
        merged = [draft4_bounds(leaf) for leaf in merge(leaves, path)] or [{}]
        if others is not True and not any("additionalProperties" in leaf for leaf in leaves):
            merged[0]["additionalProperties"] = others
        if self._closed and names.closable and not names.explicit:
            first = merged[0]
            first["properties"] = dict.fromkeys(names.names, True) | first.get("properties", {})
            first["patternProperties"] = dict.fromkeys(names.patterns, True) | first.get("patternProperties", {})
            first["additionalProperties"] = False
        nodes = [self._own(schema, path) for schema in merged]
        if any(node is False for node in nodes):
            return False
        return nodes[0] if len(nodes) == 1 else {"allOf": nodes}

    def _own(self, schema: dict[str, Any], path: str) -> Any:
        """The keywords of one schema without parts."""
        if schema.get("type") == []:
            return False
        out = {key: schema[key] for key in _AS_IT_IS if key in schema}
        out |= step(schema, path) | bounds(schema, path) | self._span(schema, path, beside=schema)
        for keyword in ("minLength", "maxLength"):
            if out.get(keyword, 0) > MAX_LENGTH:
                raise UnsupportedSchema(keyword, path, f"at most {MAX_LENGTH:,}")
        further: list[Any] = []
        if "pattern" in schema:
            pattern = translate(schema["pattern"])
            if pattern is None:
                self._leave("pattern", path)
            else:
                out["pattern"] = pattern
        if "format" in schema:
            self._format(schema["format"], out, further, path)
        self._items(schema, out, path)
        further += self._object(schema, out, path)
        return {"allOf": [out, *further]} if further else out

    def _span(self, schema: dict[str, Any], path: str, beside: dict[str, Any]) -> dict[str, Any]:
        """The keyword for a span; UnsupportedSchema where there is no text, or beside another form of strings."""
        borders = schema.get(SPAN, False)
        if borders is False:
            return {}
        if borders not in (True, "words", "characters"):
            raise UnsupportedSchema(SPAN, path, 'it takes true, "words" or "characters"')
        if not self._spans:
            raise UnsupportedSchema(SPAN, path, "there is no text to take spans from: json_schema(..., text=...)")
        other = next((key for key in ("enum", "const", "pattern", "format") if key in beside), None)
        if other is not None:
            raise UnsupportedSchema(SPAN, path, f"not beside {other}: a grammar enforces one of the two")
        return {SPAN: "characters" if borders == "characters" else "words"}

    def _format(self, name: str, out: dict[str, Any], further: list[Any], path: str) -> None:
        if name in ENFORCED:
            out["format"] = name
        elif name not in PATTERNS and name not in ANY_TEXT:
            self._leave(f'format "{name}"', path)
        elif "pattern" in out and name in PATTERNS:
            further.append({"pattern": PATTERNS[name]})
        elif name in PATTERNS:
            out["pattern"] = PATTERNS[name]

    def _items(self, schema: dict[str, Any], out: dict[str, Any], path: str) -> None:
        first, rest = tuple_items(schema)
        if first:
            out["prefixItems"] = [self._node(child, f"{path}/prefixItems/{place}") for place, child in enumerate(first)]
        if rest is not True:
            out["items"] = self._node(rest, f"{path}/items")
        if schema.get("uniqueItems") and schema.get("maxItems", 2) > 1:
            self._leave("uniqueItems", path)

    def _object(self, schema: dict[str, Any], out: dict[str, Any], path: str) -> list[Any]:
        keys = without_repeats(object_keys.named(schema, self._refs, self._valid, path))
        if keys.get("properties"):
            out["properties"] = {
                name: self._node(child, f"{path}/properties/{escape(name)}")
                for name, child in keys["properties"].items()
            }
        if keys.get("patternProperties"):
            out["patternProperties"] = {}
            for pattern, child in keys["patternProperties"].items():
                readable = translate(pattern)
                if readable is None:
                    raise UnsupportedSchema("patternProperties", path, f"the pattern {pattern!r} cannot be read")
                node = self._node(child, f"{path}/patternProperties/{escape(pattern)}")
                out["patternProperties"][readable] = node
        for keyword in ("additionalProperties", "unevaluatedProperties"):  # without parts both say the same
            if keyword in keys and "additionalProperties" not in out:
                out["additionalProperties"] = self._node(keys[keyword], f"{path}/{keyword}")
        counts = object_keys.counted(keys)
        out |= counts.keywords
        for keyword in counts.left:
            self._leave(keyword, path)
        return counts.further

    def _fitting(self, listing: dict[str, Any], others: list[dict[str, Any]]) -> list[Any]:
        """The values of an enum or a const that the rest of its schema and the others take."""
        rest = {key: value for key, value in listing.items() if key not in ("enum", "const")}
        values = finite(listing) or []
        if "const" in listing and "enum" in listing:
            rest["enum"] = listing["enum"]
        if not rest and not others:
            return values
        checker = self._checker.evolve(schema={"allOf": [rest, *others]})
        return [value for value in values if checker.is_valid(value)]

    def _valid(self, value: Any, schema: Any) -> bool:
        return bool(self._checker.evolve(schema=schema).is_valid(value))

    def _leave(self, keyword: str, path: str) -> None:
        self._left.setdefault(f"{keyword} at {path or '/'}")


def check_evaluated(schema: dict[str, Any], path: str) -> None:
    """What an `if` or `not` has looked at does not count as evaluated, and the alternatives do not tell that apart."""
    if schema.keys() & {"if", "not"}:
        raise UnsupportedSchema("unevaluatedProperties", path, "not beside if or not: name the keys")


def _has_parts(schema: Any) -> bool:
    """Whether parts must be combined; a reference or a choice that stands alone needs no combining."""
    if not isinstance(schema, dict) or not schema.keys() & set(PARTS):
        return False
    return list(schema) not in (["$ref"], ["anyOf"], ["oneOf"]) and not (
        list(schema) == ["allOf"] and len(schema["allOf"]) == 1
    )


def _any(nodes: list[Any]) -> Any:
    possible = [node for node in nodes if node is not False]
    if not possible:
        return False
    return possible[0] if len(possible) == 1 else {"anyOf": possible}
