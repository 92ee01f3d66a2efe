"""ChatML as OpenAI published it: no default system text, no empty system turn. The last resort for any model.

Reasoning of past turns is left out, as the models that reason in ChatML were trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families.prompt import Markup, Prompt, Text
from chatlocal.engine.messages import ChatMessage, Tool, read_messages

_START = Markup("<|im_start|>")
_END = Markup("<|im_end|>")


@dataclass(frozen=True, slots=True)
class ChatML:
    """Every role has a turn of its own; tools and their calls have no place in it."""

    name: str
    renders_tools: bool = False

    def render(
        self,
        messages: Iterable[ChatMessage | Mapping[str, Any]],
        tools: Sequence[Tool | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        *,
        merge_system: bool = False,
        strict: bool = False,
        **options: Any,
    ) -> Prompt:
        """See Family.render: every role and order is taken, so `merge_system` and `strict` change nothing."""
        if options:
            raise UnsupportedInput(f"The {self.name} format has no options, got {', '.join(sorted(options))}.")
        parts: list[Markup | Text] = []
        for index, turn in enumerate(read_messages(messages)):
            if turn.tool_calls:
                raise UnsupportedInput(
                    f"Message {index} holds tool calls, which the {self.name} format cannot write: choose a model"
                    " whose chat template knows tools, or write the calls into the text."
                )
            if turn.role != "system" or turn.text:
                parts += (_START, Text(f"{turn.role}\n{turn.text}"), _END, Text("\n"))
        if add_generation_prompt:
            parts += (_START, Text("assistant\n"))
        control = frozenset({_START.text, _END.text})
        return Prompt(tuple(parts), stop_strings=(_END.text,), control=control)


FAMILIES = (ChatML("chatml"), ChatML("default"))
