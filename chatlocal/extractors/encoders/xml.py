"""XML: an element for each value, named by the node's id, repeated where there are many."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints import Spec, marked
from chatlocal.extractors.encoders.encoder import Encoder, ParseError, UnsupportedNode
from chatlocal.extractors.encoders.xml_elements import read_elements
from chatlocal.extractors.node_examples import below, may_be_absent, records_of
from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Selection

# Names of elements: they are read back from between angle brackets.
_NAME = re.compile(r"[^\s<>/&\"'=!?]+")
# What a grammar allows at most: elements in a row, characters of a text, digits before and behind the point.
MOST_ELEMENTS = 100
LONGEST_TEXT = 500
_NUMBER = r"-?(0|[1-9][0-9]{0,14})"


@dataclass
class XMLEncoder(Encoder):
    """UnsupportedNode for an Object whose ids, or those of its attributes, cannot be names of elements."""

    node: Object | None = None

    def __post_init__(self) -> None:
        for node in _all_nodes(self.node) if self.node else ():
            if not _NAME.fullmatch(node.id):
                raise UnsupportedNode(f"{node.id!r} cannot be the name of an element: use json, or another id.")

    def encode(self, data: dict[str, Any]) -> str:
        return "".join(_element(name, value) for name, value in data.items())

    def decode(self, text: str) -> Any:
        if self.node is None:
            raise ParseError("The encoder has no node, and knows no names of elements: give it one.", text)
        return read_elements(text, self.node)

    def get_instruction_segment(self) -> str:
        return (
            "Write what you find in tags that are named as the attributes are above, each value between an opening tag"
            " such as <name> and a closing tag such as </name>, all of a record in the tags of the record. Repeat the"
            " tags where there are several values. Leave out what the text does not say. Write nothing else: no"
            " explanation, no other tags."
        )

    def spec(self) -> Spec:
        assert self.node is not None  # the chain gives it
        grammar = _Grammar()
        start = grammar.record(self.node)
        return marked("\n".join([f"start: {start}", *grammar.rules]), {}, {}, closings=grammar.ways_out)


def _all_nodes(node: Node) -> list[Node]:
    children = node.attributes if isinstance(node, Object) else [node.value] if isinstance(node, Dictionary) else []
    return [node, *(below for child in children for below in _all_nodes(child))]


def _element(name: str, value: Any) -> str:
    """Attributes of an object stand in the order of their names; what is None is left out."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return "".join(_element(name, item) for item in value)
    if not _NAME.fullmatch(name):
        raise UnsupportedNode(f"{name!r} cannot be the name of an element: use json for it.")
    if isinstance(value, dict):
        inside = "".join(_element(key, value[key]) for key in sorted(value))
    else:
        inside = _escaped(str(value))
    return f"<{name}>{inside}</{name}>"


# An & only where it would be read as an entity.
_READ_OTHERWISE = re.compile(r"&(?=#?\w)|<")


def _escaped(text: str) -> str:
    return _READ_OTHERWISE.sub(lambda found: html.escape(found[0]), text)


class _Grammar:
    """`rules` are lines of Lark, and `ways_out` texts that end an element from somewhere in it: what has been written
    so far beside the expressions that the methods give.
    """

    def __init__(self) -> None:
        self.ways_out: list[str] = []
        # What `_escaped` writes: an & by itself only where it is read as such.
        text = r"[^<&\x00-\x1f]|&amp;|&lt;|&[^\w#<&\x00-\x1f]"
        self.rules = [f"TEXT: /({text}){{1,{LONGEST_TEXT}}}/"]

    def record(self, node: Object) -> str:
        """An expression for the elements of the Object to extract."""
        return f"{self._one(node, records_of(node))}{{1,{MOST_ELEMENTS if node.many else 1}}}"

    def _elements(self, node: Node, records: list[dict[str, Any]]) -> str:
        """Of an attribute, which is left out only where an example shows it, and may be empty: one empty element among
        many is an empty list.
        """
        least = 0 if may_be_absent(node, records) else 1
        return f"{self._one(node, below(node, records))}{{{least},{MOST_ELEMENTS if node.many else 1}}}"

    def _one(self, node: Node, records: list[dict[str, Any]]) -> str:
        place = len(self.rules)
        self.rules.append("")
        opening, closing = (json.dumps(tag, ensure_ascii=False) for tag in (f"<{node.id}>", f"</{node.id}>"))
        self.rules[place] = f"element_{place}: {opening} {self._inside(node, records)} {closing}"
        self.ways_out += _ways_out(node, records)
        return f"element_{place}"

    def _inside(self, node: Node, records: list[dict[str, Any]]) -> str:
        inside = self._value(node, records)
        return inside if node.required or isinstance(node, Object) else f"({inside})?"

    def _value(self, node: Node, records: list[dict[str, Any]]) -> str:
        if isinstance(node, Object):
            ordered = sorted(node.attributes, key=lambda attribute: attribute.id)
            return " ".join(self._elements(attribute, records) for attribute in ordered) or '""'
        if isinstance(node, Dictionary):
            raise UnsupportedNode(f"{node.id!r} has keys of all kinds, and XML has no grammar for these: use json.")
        if isinstance(node, Selection):
            options = [json.dumps(_escaped(str(option.means)), ensure_ascii=False) for option in node.options]
            return f"({' | '.join(options)})"
        if isinstance(node, Bool):
            return '("True" | "False")'
        if isinstance(node, Number):
            return f"/{_NUMBER}{'' if node.whole else '([.][0-9]{1,8})?'}/"
        return "TEXT"


def _ways_out(node: Node, records: list[dict[str, Any]]) -> list[str]:
    """What ends an element behind each of its attributes, the shortest way first; or behind, or with, its value."""
    closing = f"</{node.id}>"
    if not isinstance(node, Object):
        return [closing, f"{_shortest(node, records)}{closing}"]
    ways = [closing]
    for attribute in sorted(node.attributes, key=lambda attribute: attribute.id, reverse=True):
        if not may_be_absent(attribute, records):
            element = f"<{attribute.id}>{_shortest(attribute, below(attribute, records))}</{attribute.id}>"
            ways.append(element + ways[-1])
    return ways


def _shortest(node: Node, records: list[dict[str, Any]]) -> str:
    """A short text inside of an element."""
    if isinstance(node, Object):
        return _ways_out(node, records)[-1].removesuffix(f"</{node.id}>")
    if not node.required:
        return ""
    if isinstance(node, Selection):
        return min((_escaped(str(option.means)) for option in node.options), key=len)
    return {Number: "0", Bool: "True"}.get(type(node), "-")
