"""The prompt of an extraction: instructions, the schema in words, the examples of all nodes, and the text.

Braces in texts, examples and descriptions are text: only the instruction template has places to fill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, PromptTemplate
from pydantic import ConfigDict

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.node_examples import examples_of
from chatlocal.extractors.nodes import Object
from chatlocal.extractors.type_descriptions import type_description

_PLACES = ("type_description", "format_instructions")
_INSTRUCTIONS = PromptTemplate.from_template(
    "Extract what is described below from the user's text. Match the names and types of the form exactly, and add"
    " nothing that is not in the form.\n\n"
    "{type_description}\n\n"
    "{format_instructions}\n\n"
)


class ExtractionPromptValue(PromptValue):
    """The prompt of one text, as one string for completion models and as messages for chat models."""

    instructions: str
    examples: list[tuple[str, str]]
    text: str

    def to_string(self) -> str:
        turns = [f"Input: {given}\nOutput: {answer}" for given, answer in self.examples]
        return "\n".join([f"{self.instructions}\n", *turns, f"Input: {self.text}\nOutput:"])

    def to_messages(self) -> list[BaseMessage]:
        messages: list[BaseMessage] = [SystemMessage(self.instructions)]
        for given, answer in self.examples:
            messages += [HumanMessage(given), AIMessage(answer)]
        return [*messages, HumanMessage(self.text)]


class ExtractionPrompt(BasePromptTemplate[Any]):
    """Makes the prompt of a text, the one variable. `format_prompt(text=...).to_string()` shows it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    encoder: Any
    node: Object
    type_descriptor: Any
    input_formatter: Any
    instruction_template: Any = None

    def format_prompt(self, **kwargs: Any) -> ExtractionPromptValue:
        text = kwargs["text"]
        if not isinstance(text, str):
            raise UnsupportedInput(f"The input of an extraction is a text, got {type(text).__name__}.")
        examples = [
            (format_text(given, self.input_formatter), self.encoder.encode(answer))
            for given, answer in examples_of(self.node)
        ]
        return ExtractionPromptValue(
            instructions=self.instructions(), examples=examples, text=format_text(text, self.input_formatter)
        )

    async def aformat_prompt(self, **kwargs: Any) -> ExtractionPromptValue:
        return self.format_prompt(**kwargs)

    def format(self, **kwargs: Any) -> str:
        return self.format_prompt(**kwargs).to_string()

    def instructions(self) -> str:
        template = read_template(self.instruction_template)
        filled = {
            "type_description": type_description(self.type_descriptor, self.node),
            "format_instructions": self.encoder.get_instruction_segment(),
        }
        return template.format(**{name: filled[name] for name in template.input_variables})

    @property
    def _prompt_type(self) -> str:
        return "kor-extraction"


def read_template(template: Any) -> PromptTemplate:
    """A PromptTemplate, or the text of one, with no other places than the two; None for the usual one."""
    if template is None:
        return _INSTRUCTIONS
    read = PromptTemplate.from_template(template) if isinstance(template, str) else template
    variables = getattr(read, "input_variables", None)
    if variables is None or not callable(getattr(read, "format", None)):
        raise UnsupportedInput(f"instruction_template is a PromptTemplate or the text of one, got {template!r:.80}.")
    others = sorted(set(variables) - set(_PLACES))
    if others:
        raise UnsupportedInput(
            f"instruction_template has places for {', '.join(_PLACES)} and no others, got {', '.join(others)}: write"
            " other braces twice."
        )
    return read


def format_text(text: str, formatter: str | Callable[[str], str] | None) -> str:
    """A text as it stands in the prompt."""
    if formatter is None:
        return text
    if callable(formatter):
        return formatter(text)
    if formatter in ("text_prefix", "triple_quotes"):
        return f'{"Text: " if formatter == "text_prefix" else ""}"""\n{text}\n"""'
    raise UnsupportedInput(f"input_formatter is None, 'text_prefix', 'triple_quotes' or a function, got {formatter!r}.")
