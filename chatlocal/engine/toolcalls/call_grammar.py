"""The grammar of calls: what a format needs to say how its calls must go on, and specs made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chatlocal.engine.constraints import Opening, Spec, marked
from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.errors import UnsupportedSchema
from chatlocal.engine.messages import Tool
from chatlocal.engine.toolcalls.writing import as_json

_NAME = re.compile(r"\b(?:rule|TEXT|mark|schema)_[0-9]+\b")
# Calls in one answer, so that a model that repeats itself comes to an end.
MOST_CALLS = 16


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which calls begin. `rest` is the Lark expression of all that follows the opening.

    `place` is where in an answer the opening counts, as in constraints.Opening. `before` is the Lark expression of what
    stands in front of it where a call is demanded; `offered` is False for ways that are followed where the model goes
    them and that are not the one to demand.
    """

    opening: str
    rest: str
    place: Literal["anywhere", "line", "start"] = "anywhere"
    before: str = ""
    offered: bool = True


class CallGrammar:
    """Collects the rules of one Lark grammar; a format writes its calls with it.

    `parallel`: there may be several calls. `opened` is what the prompt has opened of the answer, `marks` are the
    control tokens of the model's tokenizer.
    """

    def __init__(self, *, parallel: bool, opened: str = "", marks: frozenset[str] = frozenset()) -> None:
        self.parallel = parallel
        self.opened = opened
        self.marks = marks
        self._rules: dict[str, str] = {}
        self._marks: dict[str, str] = {}
        self._schemas: dict[str, Any] = {}
        self._left: list[str] = []
        self._closings: dict[str, None] = {}

    def mark(self, text: str) -> str:
        """A mark of the format: one control token, or its text where the tokenizer has no such token."""
        names = {known: name for name, known in self._marks.items()}
        if text not in names:
            self._marks[f"mark_{len(self._marks)}"] = text
        return names.get(text) or f"mark_{len(self._marks) - 1}"

    def json(self, schema: dict[str, Any]) -> str:
        """A JSON value that fits a schema."""
        self._schemas[f"schema_{len(self._schemas)}"] = schema
        return f"schema_{len(self._schemas) - 1}"

    def arguments(self, tool: Tool) -> str:
        """The arguments of a call to a tool as one JSON object, whether or not its parameters say that they are one.

        UnsupportedSchema for parameters of another type.
        """
        kind = tool.parameters.get("type", "object")
        if isinstance(kind, str | list) and kind != "object" and "object" not in kind:
            raise UnsupportedSchema("type", "", f"the parameters of {tool.name} are {kind!r}: arguments are an object")
        checker(dict(tool.parameters))
        return self.json({**tool.parameters, "type": "object"})

    def leave(self, keyword: str) -> None:
        """A keyword of a schema that the rules do not enforce: the finished call is to be checked."""
        self._left.append(keyword)

    def closes(self, text: str) -> None:
        """A text or mark that ends a free text."""
        self._closings[text] = None

    def rule(self, *options: str) -> str:
        """One of these expressions, under a name of its own."""
        return self._named(f"rule_{len(self._rules)}", options)

    def terminal(self, *options: str) -> str:
        """One of these expressions of texts and regular expressions, under a name of its own: read as one piece."""
        return self._named(f"TEXT_{len(self._rules)}", options)

    def _named(self, name: str, options: Sequence[str]) -> str:
        self._rules[name] = f"{name}: {' | '.join(options)}"
        return name

    def repeated(self, item: str, separator: str) -> str:
        """One item, or several with a separator between them where calls may be parallel."""
        return f"{item} ({separator} {item}){{0,{MOST_CALLS - 1}}}" if self.parallel else item

    def spec(self, *options: str) -> Spec:
        """The spec of a text that is one of these expressions."""
        start = "start: " + " | ".join(options)
        used = self._used(start)
        return marked(
            "\n".join([start, *(rule for name, rule in self._rules.items() if name in used)]),
            {name: mark for name, mark in self._marks.items() if name in used},
            {name: schema for name, schema in self._schemas.items() if name in used},
            self._left,
            self._closings,
        )

    def _used(self, start: str) -> set[str]:
        """The names of rules that can be reached."""
        used: set[str] = set()
        new = [start]
        while new:
            for name in _NAME.findall(new.pop()):
                if name not in used:
                    used.add(name)
                    new.append(self._rules.get(name, ""))
        return used

    def demanded(self, ways: Iterable[Way]) -> Spec:
        """The spec of an answer that is calls."""
        offered = [way for way in ways if way.offered]
        return self.spec(*(f"{way.before} {self.mark(way.opening)} {way.rest}".strip() for way in offered))

    def openings(self, ways: Sequence[Way]) -> list[Opening]:
        """What must follow where the model begins a call by itself."""
        return [Opening(way.opening, self.spec(way.rest), way.place) for way in ways]


def literal(*texts: str) -> str:
    """Texts, joined, as Lark has them."""
    return json.dumps("".join(texts), ensure_ascii=False)


def call_object(grammar: CallGrammar, tools: Iterable[Tool], arguments: str) -> str:
    """A call as a JSON object: its name, and its arguments under a key of that name."""
    opening, key, closing = '{"name": ', f', "{arguments}": ', literal("}")
    return grammar.rule(
        *(f"{literal(opening, as_json(tool.name), key)} {grammar.arguments(tool)} {closing}" for tool in tools)
    )
