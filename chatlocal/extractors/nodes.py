"""What to extract, in Kor's terms: an Object with attributes, each described and with examples.

The names and arguments are those of Kor 3 (MIT licence), and Kor's own nodes are taken too: `as_node` goes by the
names of classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from chatlocal.engine.errors import UnsupportedInput


class Node(BaseModel):
    """A value to extract: its name in the answer, what it is, and whether there may be several (then it is a list).

    `required`: a grammar leaves no way to go without it. Kor has no such thing and asks for nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    description: str = ""
    many: bool = False
    required: bool = False

    def replace(self, id: str | None = None, description: str | None = None) -> Any:
        """The same node under another id or description."""
        changed = {"id": id, "description": description}
        return self.model_copy(update={name: value for name, value in changed.items() if value})


class _WithExamples(Node):
    examples: tuple[tuple[str, Any], ...] = ()
    """Pairs of a text and what is to be extracted from it."""


class Text(_WithExamples):
    """A string. `mixed`: the class behind it takes other scalars too, so a number in an answer stays a number."""

    mixed: bool = False


class Number(_WithExamples):
    """A number. `whole`: a grammar allows no fraction."""

    whole: bool = False


class Bool(_WithExamples):
    """True or false."""


class Option(Node):
    """One of the values of a Selection, with texts that mean it.

    `value` is what stands in the data where that is not the id itself, such as the number 1 for "1".
    """

    examples: tuple[str, ...] = ()
    value: Any = None

    @property
    def means(self) -> Any:
        return self.id if self.value is None else self.value


class Selection(_WithExamples):
    """One of some options. `null_examples` are texts that mean none of them."""

    options: tuple[Option, ...] = Field(min_length=1)
    null_examples: tuple[str, ...] = ()

    @field_validator("options", mode="before")
    @classmethod
    def _options(cls, options: Any) -> Any:
        return [as_option(option) for option in options] if isinstance(options, (list, tuple)) else options


class Dictionary(_WithExamples):
    """An object whose keys are not known before, and whose values are all of one kind."""

    value: SerializeAsAny[Node]


class Object(_WithExamples):
    """A record. Its examples are pairs of a text and a dict, or a list of dicts; an empty one says that none is there.

    ValueError for two attributes of one id.
    """

    attributes: tuple[SerializeAsAny[Node], ...]

    @field_validator("attributes", mode="before")
    @classmethod
    def _nodes(cls, attributes: Any) -> Any:
        return [as_node(attribute) for attribute in attributes] if isinstance(attributes, (list, tuple)) else attributes

    @model_validator(mode="after")
    def _told_apart(self) -> Object:
        ids = [attribute.id for attribute in self.attributes]
        twice = sorted({id for id in ids if ids.count(id) > 1})
        if twice:
            raise ValueError(f"{self.id} has several attributes with one id, and an answer cannot: {', '.join(twice)}.")
        return self


Leaf: TypeAlias = Text | Number | Bool | Selection

_KINDS: dict[str, type[Node]] = {kind.__name__: kind for kind in (Text, Number, Bool, Selection, Dictionary, Object)}


def as_node(node: Any) -> Node:
    """The node itself, or ours for one of Kor's: a class of the same name with the same attributes."""
    if isinstance(node, Node):
        return node
    for kind in type(node).__mro__:
        if kind.__name__ in _KINDS and hasattr(node, "id"):
            read: Node = _copied(_KINDS[kind.__name__], node)
            return read
    raise UnsupportedInput(
        f"A node is an Object, a Text, a Number, a Bool or a Selection, of chatlocal or of Kor, got {node!r:.80}."
    )


def as_option(option: Any) -> Any:
    """Ours for one of Kor's options; what is no option is left for the Selection to refuse."""
    if isinstance(option, (Option, Mapping)) or not hasattr(option, "id"):
        return option
    return _copied(Option, option)


def as_object(node: Any) -> Object:
    """The node as an Object. UnsupportedInput for any other kind."""
    read = as_node(node)
    if not isinstance(read, Object):
        raise UnsupportedInput(
            f"The node to extract is an Object with attributes, got {type(read).__name__} {read.id!r}."
        )
    return read


def _copied(kind: type[Any], node: Any) -> Any:
    found = {name: getattr(node, name) for name in kind.model_fields if getattr(node, name, None) is not None}
    return kind(**found)
