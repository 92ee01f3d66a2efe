"""What an encoding is: how data is written, read and constrained. One file for each, all three side by side."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from chatlocal.engine.constraints import Spec
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput


class ParseError(OutputInvalid):
    """An answer, or a part of it, that cannot be read or does not fit the schema. It stands among a result's errors."""


class ReadInPart(ParseError):
    """A part of an answer could be read, and is `value`; `problems` say what could not."""

    def __init__(self, value: Any, problems: list[str], raw: str) -> None:
        super().__init__(" ".join(problems), raw)
        self.value = value
        self.problems = problems


class UnsupportedNode(UnsupportedInput, NotImplementedError):
    """A node, or a type of a Pydantic field, that cannot be written this way: the message says what can."""


class Encoder(ABC):
    """An encoding of the data of one Object, under its id: {"person": {...}}, or a list of them where it has many.

    Encoders of your own need the three abstract methods; one with `spec` can be used with constrain=True.
    """

    always_rows = False
    """Whether data is read as a list of records even where the node has only one."""

    @abstractmethod
    def encode(self, data: dict[str, Any]) -> str:
        """Write the data of an example; {} where there is nothing to extract."""

    @abstractmethod
    def decode(self, text: str) -> Any:
        """Read an answer, whatever stands around the data. ParseError where there is nothing that can be read."""

    @abstractmethod
    def get_instruction_segment(self) -> str:
        """What the model is told about the form of its answer."""

    def spec(self) -> Spec:
        """The answers that a model may write. UnsupportedInput where the encoding has no grammar."""
        raise UnsupportedInput(f"{type(self).__name__} has no grammar: leave constrain=True out, or give it a spec().")


def tagged_parts(text: str, tag: str) -> list[str]:
    """What stands in a tag, each time; to the end of the text where a closing tag is missing."""
    return [found[1] for found in re.finditer(rf"<{tag}\s*>(.*?)(?:</{tag}\s*>|\Z)", text, re.DOTALL | re.IGNORECASE)]


def fenced_parts(text: str) -> list[str]:
    """What stands in Markdown's code fences, each time; to the end of the text where the closing one is missing."""
    return [found[1] for found in re.finditer(r"```[ \t]*\w*[ \t]*\n(.*?)(?:```|\Z)", text, re.DOTALL)]
