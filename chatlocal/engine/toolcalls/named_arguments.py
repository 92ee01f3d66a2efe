"""The grammar of arguments that are written one by one with their names, not as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints.formats import PATTERNS
from chatlocal.engine.constraints.whole_patterns import whole_pattern
from chatlocal.engine.errors import UnsupportedSchema
from chatlocal.engine.messages import Tool
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, literal
from chatlocal.engine.toolcalls.tagged_text import TaggedText
from chatlocal.engine.toolcalls.typed_text import referred

# What says more of an object than its properties one by one.
_WHOLE = ("allOf", "anyOf", "oneOf", "not", "if", "$ref", "patternProperties", "propertyNames", "minProperties")
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
    parameters = tool.parameters
    for keyword in _WHOLE:
        if keyword in parameters:
            raise UnsupportedSchema(
                keyword, "", f"the model writes the arguments of {tool.name} one by one: declare them as properties"
            )
    required = parameters.get("required") or ()
    return tuple(Argument(name, schema, name in required) for name, schema in _properties(parameters).items())


def with_definitions(schema: Any, tool: Tool) -> Any:
    """The schema of an argument with the definitions of its tool, to which it may refer."""
    kept = {place: tool.parameters[place] for place in ("$defs", "definitions") if place in tool.parameters}
    return {**schema, **kept} if isinstance(schema, dict) and kept else schema


def in_order(grammar: CallGrammar, items: Sequence[tuple[str, bool]], separator: str) -> str:
    """Expressions one after the other with a separator between those that are there; each comes with whether it must
    be."""
    fresh = going_on = literal("")
    for item, required in reversed(items):
        alone = f"{item} {going_on}"
        fresh = alone if required else grammar.rule(alone, fresh)
        going_on = grammar.rule(f"{separator} {alone}", *([] if required else [going_on]))
    return fresh


def tagged_value(grammar: CallGrammar, tool: Tool, schema: Any, form: TaggedText, end: str) -> str:
    """The value of an argument as it stands between tags, with the text or mark `end` behind it."""
    marked = end in grammar.marks
    grammar.closes(end)
    closing = grammar.mark(end) if marked else literal(end)
    bars = "|".join(_escaped(tag) for tag in (form.closing, *form.openings))
    free = f"~/(?s:.*)({bars})(?s:.*)/"
    options = []
    for kind, option in _options(grammar, tool, schema, form, 0):
        if kind == "text":
            body = f"{option} & {free}"
            options.append(f"{grammar.terminal(body)} {closing}" if marked else grammar.terminal(f"({body}) {closing}"))
        else:
            options.append(f"{option} {closing}")
    return grammar.rule(*dict.fromkeys(options))


def _properties(parameters: dict[str, Any]) -> dict[str, Any]:
    properties = parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def _options(grammar: CallGrammar, tool: Tool, schema: Any, form: TaggedText, depth: int) -> Iterator[tuple[str, str]]:
    """The ways to write a value: ("text", a terminal) or ("value", an expression)."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        yield "text", _ANY_TEXT
        return
    if isinstance(schema.get("$ref"), str):
        yield from _options(grammar, tool, referred(tool.parameters, schema["$ref"]), form, depth + 1)
        return
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None:
        yield from (("value", literal(form.written(choice))) for choice in choices)
        return
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            for option in schema[keyword]:
                yield from _options(grammar, tool, option, form, depth + 1)
            return
    kinds = schema.get("type")
    if isinstance(kinds, list):
        for kind in kinds:
            yield from _options(grammar, tool, {**schema, "type": kind}, form, depth + 1)
    elif kinds == "string":
        yield "text", _text(grammar, schema)
    elif kinds is None and "properties" not in schema:
        yield "text", _ANY_TEXT
    else:
        yield "value", grammar.json(with_definitions(schema, tool))


def _text(grammar: CallGrammar, schema: dict[str, Any]) -> str:
    """A string as a terminal: all that the schema says of it at once; what a terminal cannot say is left."""
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", "")
    parts = [f"/(?s:.{{{shortest},{longest}}})/"] if shortest or longest != "" else []
    patterns = {"pattern": schema.get("pattern")}
    if "format" in schema:
        patterns[f'format "{schema["format"]}"'] = PATTERNS.get(schema["format"], "")
    for keyword, pattern in patterns.items():
        whole = None if pattern is None else whole_pattern(pattern)
        if whole is not None:
            parts.append("/{}/".format(whole.replace("/", "\\/")))
        elif keyword in schema or pattern is not None:
            grammar.leave(keyword)
    return " & ".join(parts) or _ANY_TEXT


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


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
