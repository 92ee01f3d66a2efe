"""The grammar of arguments that are written one by one with their names, not as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.constraints.formats import PATTERNS
from chatlocal.engine.constraints.whole_patterns import ascii_classes, whole_pattern
from chatlocal.engine.errors import UnsupportedSchema
from chatlocal.engine.messages import Tool
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, literal
from chatlocal.engine.toolcalls.tagged_text import TaggedText
from chatlocal.engine.toolcalls.typed_text import kinds_allowed, referred

_ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment")
)
_DEFINITIONS = ("$defs", "definitions")
# What can be said of an object one argument at a time.
_OF_OBJECTS = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties", *_DEFINITIONS, "$schema", "$id"}
_OF_TEXTS = _ANNOTATIONS | {"type", "minLength", "maxLength", "pattern", "format"}
# The lists there are data, whatever they look like.
_DATA = frozenset({"enum", "const", "default", "examples"})
_DEEPEST = 16  # schemas in schemas: references may go round
_ANY_TEXT = "/(?s:.*)/"
_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~/")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a tool: its name, its JSON Schema and whether a call must have it."""

    name: str
    schema: Any
    required: bool


def arguments_of(tool: Tool) -> tuple[Argument, ...]:
    """The arguments of a tool in declared order. UnsupportedSchema where they cannot be put one by one."""
    checker(dict(tool.parameters))
    parameters = _followed(tool, tool.parameters)
    for keyword in parameters:
        if keyword not in _OF_OBJECTS:
            raise UnsupportedSchema(
                keyword, "", f"the model writes the arguments of {tool.name} one by one: declare them as properties"
            )
    properties = parameters.get("properties", {})
    required = parameters.get("required", ())
    for name in required:
        if properties.get(name, False) is False:
            raise UnsupportedSchema("required", "", f"{tool.name} has no argument {name!r}: declare it as a property")
    return tuple(Argument(name, schema, name in required) for name, schema in properties.items() if schema is not False)


def with_definitions(schema: Any, tool: Tool) -> Any:
    """The schema of an argument as one that stands by itself: what it refers to in its tool's comes with it."""
    if "$ref" not in repr(schema):
        return schema
    return {**_rebased(schema), "$defs": {"tool": _rebased(tool.parameters)}}


def in_order(grammar: CallGrammar, items: Sequence[tuple[str, bool]], separator: str) -> str:
    """Expressions in order with a separator between those that are there; with each whether it must be."""
    fresh = going_on = literal("")
    for item, required in reversed(items):
        alone = f"{item} {going_on}"
        fresh = alone if required else grammar.rule(alone, fresh)
        going_on = grammar.rule(f"{separator} {alone}", *([] if required else [going_on]))
    return fresh


def tagged_value(grammar: CallGrammar, tool: Tool, argument: Argument, form: TaggedText, end: str) -> str:
    """The value of an argument as it stands between tags, with the text or mark `end` behind it."""
    marked = end in grammar.marks
    grammar.closes(end)
    closing = grammar.mark(end) if marked else literal(end)
    bars = "|".join(_escaped(tag) for tag in (form.closing, *form.openings))
    free = f"~/(?s:.*)({bars})(?s:.*)/"
    options = []
    for kind, option in _Values(grammar, tool, argument, form).options(argument.schema, 0):
        if kind == "text":
            body = f"{option} & {free}"
            options.append(f"{grammar.terminal(body)} {closing}" if marked else grammar.terminal(f"({body}) {closing}"))
        else:
            options.append(f"{option} {closing}")
    return grammar.rule(*dict.fromkeys(options))


def keyword_arguments(grammar: CallGrammar, tool: Tool) -> str:
    """Arguments as those of a Python call, `a=1, b="x"`; the values as JSON, whose constants are read too."""
    items = []
    for argument in arguments_of(tool):
        if not argument.name.isidentifier():
            raise UnsupportedSchema(
                "properties", f"/{argument.name}", "the model writes Python calls: give the argument a Python name"
            )
        value = grammar.json(with_definitions(argument.schema, tool))
        items.append((f"{literal(argument.name + '=')} {value}", argument.required))
    return in_order(grammar, items, literal(", "))


class _Values:
    """The ways to write the value of one argument as text."""

    def __init__(self, grammar: CallGrammar, tool: Tool, argument: Argument, form: TaggedText) -> None:
        self._grammar = grammar
        self._tool = tool
        self._path = f"/properties/{argument.name}"
        self._form = form

    def options(self, schema: Any, depth: int) -> Iterator[tuple[str, str]]:
        """("text", a terminal) or ("value", an expression) for each way."""
        if schema is False:
            return
        if depth > _DEEPEST:
            raise UnsupportedSchema("$ref", self._path, "it refers to itself")
        schema = {} if schema is True else schema
        said = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
        if "enum" in said or "const" in said:
            yield from self._choices(schema)
        elif "string" not in kinds_allowed(schema, self._tool.parameters, 0):
            yield "value", self._grammar.json(with_definitions(schema, self._tool))
        elif not said:
            yield "text", _ANY_TEXT
        elif list(said) == ["$ref"]:
            yield from self.options(_followed(self._tool, schema), depth + 1)
        elif list(said) in (["anyOf"], ["oneOf"]):
            ((keyword, options),) = said.items()
            if keyword == "oneOf":
                self._grammar.leave(f"oneOf at {self._path}")
            for option in options:
                yield from self.options(option, depth + 1)
        elif isinstance(said.get("type"), list):
            for kind in said["type"]:
                yield from self.options({**schema, "type": kind}, depth + 1)
        else:
            yield "text", self._text(said)

    def _choices(self, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """The values of an enum that the rest of the schema allows."""
        valid = checker(with_definitions(schema, self._tool)).is_valid
        for choice in schema.get("enum", [schema.get("const")]):
            if valid(choice):
                yield "value", literal(self._form.written(choice))

    def _text(self, said: dict[str, Any]) -> str:
        """A string as a terminal: all that the schema says of it at once; what a terminal cannot say is left."""
        for keyword in said:
            if keyword not in _OF_TEXTS or "type" not in said:
                raise UnsupportedSchema(
                    keyword, self._path, "the model writes this argument as plain text: give it a plain type"
                )
        shortest, longest = said.get("minLength", 0), said.get("maxLength", "")
        parts = [f"/(?s:.{{{shortest},{longest}}})/"] if shortest or longest != "" else []
        if "pattern" in said:
            parts += self._whole("pattern", said["pattern"])
        if "format" in said:
            parts += self._whole(f'format "{said["format"]}"', PATTERNS.get(said["format"]))
        return " & ".join(parts) or _ANY_TEXT

    def _whole(self, what: str, pattern: str | None) -> list[str]:
        whole = None if pattern is None else ascii_classes(whole_pattern(pattern) or "")
        if whole:
            return ["/{}/".format(whole.replace("/", "\\/"))]
        self._grammar.leave(f"{what} at {self._path}")
        return []


def _followed(tool: Tool, schema: Any) -> dict[str, Any]:
    """The schema behind a reference, with what stands beside it. UnsupportedSchema where it leads to nothing."""
    seen: list[str] = []
    while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
        target = None if reference in seen else referred(tool.parameters, reference)
        if not isinstance(target, dict):
            raise UnsupportedSchema("$ref", "", f"{reference!r} leads to no schema in the parameters of {tool.name}")
        seen.append(reference)
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return dict(schema)


def _rebased(value: Any) -> Any:
    """A schema whose references into its document lead into the definition `tool`."""
    if isinstance(value, list):
        return [_rebased(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"#/$defs/tool{item[1:]}"
        if key == "$ref" and isinstance(item, str) and item.startswith("#")
        else item
        if key in _DATA
        else _rebased(item)
        for key, item in value.items()
    }


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)
