"""The schema of an Object in words for the prompt, in the two forms that Kor has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Selection, Text

Describe = Callable[[Object], str]


def typescript(node: Object) -> str:
    """A TypeScript type in a code fence, the descriptions as comments."""
    code = "\n".join(_typescript_lines(node, 0))
    return f"```TypeScript\n\n{code}\n```\n"


def bullet_point(node: Object) -> str:
    """A list of names and kinds of nodes, one space deeper for each level."""
    return "\n".join(_bullets(node, 0))


_FORMS: dict[str, Describe] = {"typescript": typescript, "bullet_point": bullet_point}


def type_description(descriptor: Any, node: Object) -> str:
    """`descriptor` is "typescript", "bullet_point", a function of the node, or an object with Kor's `describe`."""
    if isinstance(descriptor, str) and descriptor in _FORMS:
        return _FORMS[descriptor](node)
    describe = getattr(descriptor, "describe", None) or (descriptor if callable(descriptor) else None)
    if describe is None:
        raise UnsupportedInput(
            f"type_descriptor is {' or '.join(map(repr, _FORMS))}, a function of the node, or an object with a method"
            f" describe, got {descriptor!r}."
        )
    return str(describe(node))


def _typescript_lines(node: Node, depth: int) -> list[str]:
    opening, closing = _around(node)
    inner: Node = node
    while isinstance(inner, Dictionary):
        inner = inner.value
        more, less = _around(inner)
        opening, closing = opening + more, less + closing
    start = f"{depth * ' '}{node.id}: {opening}"
    if not isinstance(inner, Object):
        return [f"{start}{_type_name(inner)}{closing} // {node.description}"]
    lines = [f"{start}{{ // {node.description}"]
    for attribute in inner.attributes:
        lines += _typescript_lines(attribute, depth + 1)
    return [*lines, f"{depth * ' '}}}{closing}"]


def _around(node: Node) -> tuple[str, str]:
    """What stands around the type of one value."""
    opening, closing = ("Array<", ">") if node.many else ("", "")
    return (f"{opening}Record<string, ", f">{closing}") if isinstance(node, Dictionary) else (opening, closing)


def _type_name(node: Node) -> str:
    if isinstance(node, Selection):
        return " | ".join(f'"{option.id}"' for option in node.options)
    return {Text: "string", Number: "number", Bool: "boolean"}[type(node)]


def _bullets(node: Node, depth: int) -> list[str]:
    lines = [f"* {depth * ' '}{node.id}: {type(node).__name__} # {node.description}"]
    children = node.attributes if isinstance(node, Object) else [node.value] if isinstance(node, Dictionary) else []
    for child in children:
        lines += _bullets(child, depth + 1)
    return lines
