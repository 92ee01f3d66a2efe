"""A JSON Schema some of whose strings are spans of a text, as a grammar in llguidance's Lark syntax.

llguidance's own reader of JSON Schema knows no spans, and its Lark syntax does. So the objects, arrays and choices that
lead to such a string are written as rules here, and everything else is a schema for that reader. Schemas are those of
`normalise`.
"""

from __future__ import annotations

import json
from typing import Any

from chatlocal.engine.constraints.keywords import SPAN
from chatlocal.engine.constraints.references import escape, unescape
from chatlocal.engine.constraints.shortest_values import schemas_in
from chatlocal.engine.constraints.text_spans import TextSpans, form
from chatlocal.engine.errors import UnsupportedSchema

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
# What llguidance's reader would combine with the rest of an object or array, and this one does not.
_OF_OBJECTS = ("patternProperties", "minProperties", "maxProperties")


def has_spans(node: Any) -> bool:
    """Whether a string in a schema, its definitions included, must be a span."""
    return any(SPAN in each for each in schemas_in(node))


def span_grammar(schema: dict[str, Any], spans: TextSpans, separators: tuple[str, str]) -> str:
    """The Lark grammar; `separators` as in a Spec.

    UnsupportedSchema where a span stands beside what this cannot combine with it, or the text has none so long.
    """
    writer = _Writer(schema, spans, separators)
    return "\n".join([f"start: {writer.node(schema, '')}", *writer.rules])


def with_a_span(node: Any, spans: TextSpans, path: str = "") -> Any:
    """The schema with one short span in the place of each string that must be one: for what looks for short texts."""
    if not isinstance(node, dict):
        return node
    if SPAN not in node:
        out = dict(node)
        for key, child in node.items():
            if key == "anyOf":
                out[key] = _options(child, spans, f"{path}/{key}")
            elif key in ("allOf", "prefixItems"):
                out[key] = [with_a_span(each, spans, f"{path}/{key}/{place}") for place, each in enumerate(child)]
            elif key in ("properties", "patternProperties", "$defs"):
                out[key] = {
                    name: with_a_span(each, spans, f"{path}/{key}/{escape(name)}") for name, each in child.items()
                }
            elif key in ("items", "additionalProperties"):
                out[key] = with_a_span(child, spans, f"{path}/{key}")
        return out
    least, most = node.get("minLength", 0), node.get("maxLength")
    short = spans.shortest(node[SPAN], least, most)
    options: list[Any] = [] if short is None else [{"enum": [short]}]
    others = _other_types(node)
    if others:
        options.append(with_a_span(others, spans, path))
    if not options:
        size = f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
        raise UnsupportedSchema(SPAN, path, f"the text has no span of {size} characters")
    return {"anyOf": options}


def _options(options: list[Any], spans: TextSpans, path: str) -> list[Any]:
    """Those of the options that the text has a span for; UnsupportedSchema where it has for none."""
    found: list[Any] = []
    refused: UnsupportedSchema | None = None
    for place, option in enumerate(options):
        try:
            found.append(with_a_span(option, spans, f"{path}/{place}"))
        except UnsupportedSchema as error:
            refused = error
    if refused is not None and not found:
        raise refused
    return found


class _Writer:
    """`rules` are lines of Lark: what `node` has written so far beside the expression that it gives."""

    def __init__(self, root: dict[str, Any], spans: TextSpans, separators: tuple[str, str]) -> None:
        self.rules: list[str] = []
        self._definitions: dict[str, Any] = root.get("$defs", {})
        self._with_spans = self._leading_to_spans()
        self._spans = spans
        self._item, self._key = separators
        self._known: dict[str, str] = {}  # the text of a schema, or what a regex is of -> the name of its rule

    def node(self, schema: Any, path: str) -> str:
        """An expression for the values of a schema."""
        schema = {key: value for key, value in schema.items() if key != "$defs"} if isinstance(schema, dict) else schema
        text = json.dumps(schema)
        if text not in self._known:
            name = self._known[text] = f"value_{len(self._known)}"
            self.rules.append(f"{name}: {self._body(schema, path)}")
        return self._known[text]

    def _body(self, schema: Any, path: str) -> str:
        if not self._leads(schema):
            return self._plain(schema)
        if "$ref" in schema:
            name = unescape(schema["$ref"].removeprefix("#/$defs/"))
            return self.node(self._definitions[name], f"/$defs/{escape(name)}")
        if "anyOf" in schema:
            return " | ".join(self.node(child, f"{path}/anyOf/{place}") for place, child in enumerate(schema["anyOf"]))
        if "allOf" in schema:
            raise UnsupportedSchema(SPAN, path, "not beside parts that hold together (a number of keys, two patterns)")
        ways = []
        types = schema.get("type", _TYPES)
        types = [types] if isinstance(types, str) else list(types)
        if SPAN in schema and "string" in types:
            ways.append(self._string(schema))
            types.remove("string")
        for type, write in (("array", self._array), ("object", self._object)):
            if type in types and self._leads({key: schema[key] for key in _CHILDREN[type] if key in schema}):
                ways.append(write(schema, path))
                types.remove(type)
        if types:
            ways.append(self.node({key: value for key, value in schema.items() if key != SPAN} | {"type": types}, path))
        return " | ".join(ways)

    def _plain(self, schema: Any) -> str:
        """A schema without spans, for llguidance's reader."""
        options = {"whitespace_flexible": False, "item_separator": self._item, "key_separator": self._key}
        needed: dict[str, Any] = {}
        waiting = [schema]
        while waiting:
            for name in _references(waiting.pop()):
                if name not in needed:
                    needed[name] = self._definitions[name]
                    waiting.append(needed[name])
        whole = {**(schema if isinstance(schema, dict) else {}), **({"$defs": needed} if needed else {})}
        return f"%json {json.dumps({**whole, 'x-guidance': options})}"

    def _string(self, schema: dict[str, Any]) -> str:
        borders = schema[SPAN]
        automaton = self._terminal("SPANS", borders, self._spans.automaton(borders))
        looks = form(borders, schema.get("minLength", 0), schema.get("maxLength"))
        return self._terminal("STRING", borders + looks, f'"\\"" ({automaton} & /{looks}/) "\\""')

    def _terminal(self, name: str, of: str, body: str) -> str:
        if of not in self._known:
            self._known[of] = f"{name}_{len(self._known)}"
            self.rules.append(f"{self._known[of]}: {body}")
        return self._known[of]

    def _array(self, schema: dict[str, Any], path: str) -> str:
        first = schema.get("prefixItems", [])
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if schema.get("items", {}) is False:
            most = len(first) if most is None else min(most, len(first))
        comma = _literal(self._item)

        def item(place: int) -> str:
            child = first[place] if place < len(first) else schema.get("items", {})
            where = f"prefixItems/{place}" if place < len(first) else "items"
            return f"{comma if place else ''} {self.node(child, f'{path}/{where}')}"

        # From behind: what may follow the places of their own, then each of these.
        own = max(len(first), 1)
        own = own if most is None else min(own, most)
        rest = ""
        if most is None or most > own:
            rest = f"({item(max(own, 1))}){{{max(least - own, 0)},{'' if most is None else most - own}}}"
        for place in reversed(range(own)):
            rest = f"{item(place)} {rest}" if place < least else f"({item(place)} {rest})?"
        return f'"[" {rest} "]"'

    def _object(self, schema: dict[str, Any], path: str) -> str:
        for keyword in _OF_OBJECTS:
            if schema.get(keyword):
                raise UnsupportedSchema(SPAN, f"{path}/{keyword}", f"not in an object with {keyword}")
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties", {})
        properties = properties | {name: others for name in required if name not in properties}
        possible = {name: child for name, child in properties.items() if child is not False}
        if any(name not in possible for name in required):
            raise UnsupportedSchema("required", path, "a required key has no valid value")
        members = [
            (f"{_literal(self._name(name))} {self.node(child, f'{path}/properties/{escape(name)}')}", name in required)
            for name, child in possible.items()
        ]
        if others is not False:
            key = self._other_key(list(properties))
            members.append((f"{key} {_literal(self._key)} {self.node(others, f'{path}/additionalProperties')}", False))
        return f'"{{" {self._members(members, more=others is not False)} "}}"'

    def _members(self, members: list[tuple[str, bool]], more: bool) -> str:
        """Members in their order, each with whether it is required; if `more`, the last one any number of times.

        Whether a comma stands before a member depends on whether any came before it.
        """
        comma = _literal(self._item)
        behind = ['""']  # behind[-1 - i]: what may follow member i
        for place, (text, required) in reversed(list(enumerate(members))):
            many = "*" if more and place == len(members) - 1 else "" if required else "?"
            behind.append(self._rule(f"({comma} {text}){many} {behind[-1]}"))
        ways = []
        for place, (text, required) in enumerate(members):
            repeated = behind[-1 - place] if more and place == len(members) - 1 else behind[-2 - place]
            ways.append(f"{text} {repeated}")
            if required:
                break
        else:
            ways.append('""')
        return f"({' | '.join(ways)})"

    def _rule(self, body: str) -> str:
        name = f"rest_{len(self.rules)}"
        self.rules.append(f"{name}: {body}")
        return name

    def _name(self, name: str) -> str:
        return f"{json.dumps(name, ensure_ascii=False)}{self._key}"

    def _other_key(self, names: list[str]) -> str:
        """A terminal for keys that are not among these."""
        declared = " | ".join(_literal(json.dumps(name, ensure_ascii=False)) for name in names)
        key = f'"\\"" /{form("characters")}/ "\\""'
        return self._terminal("KEY", f"key {declared}", f"({key}) & ~({declared})" if declared else key)

    def _leads(self, node: Any) -> bool:
        """Whether a schema has a span in it, through references too."""
        return has_spans(node) or any(name in self._with_spans for name in _references(node))

    def _leading_to_spans(self) -> set[str]:
        """The names of the definitions that have a span in them, through other definitions too."""
        found = {name for name, node in self._definitions.items() if has_spans(node)}
        while True:
            further = {
                name
                for name, node in self._definitions.items()
                if name not in found and not found.isdisjoint(_references(node))
            }
            if not further:
                return found
            found |= further


_CHILDREN = {"array": ("items", "prefixItems"), "object": ("properties", "patternProperties", "additionalProperties")}


def _other_types(node: dict[str, Any]) -> dict[str, Any]:
    """A schema for what it allows beside strings; empty where that is nothing."""
    types = node.get("type", _TYPES)
    others = [] if isinstance(types, str) else [type for type in types if type != "string"]
    return {**{key: value for key, value in node.items() if key != SPAN}, "type": others} if others else {}


def _references(node: Any) -> list[str]:
    """The names of definitions that a schema refers to."""
    return [unescape(each["$ref"].removeprefix("#/$defs/")) for each in schemas_in(node) if "$ref" in each]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
