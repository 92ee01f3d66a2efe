"""What every prompt family offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from chatlocal.engine.families.prompt import Prompt
from chatlocal.engine.messages import ChatMessage, Tool


class Family(Protocol):
    """A way to write conversations that some models were trained on."""

    @property
    def name(self) -> str:
        """The name that `families.get` knows, or "jinja" for a template."""
        ...

    @property
    def renders_tools(self) -> bool:
        """Whether tools that are given change the prompt; where not, telling the model of them is the caller's work."""
        ...

    @property
    def tool_format(self) -> str | None:
        """The name of the format in which tool calls are written, None when they are not or it is not known."""
        ...

    @property
    def source(self) -> str:
        """Where the format comes from, for a person to read."""
        ...

    @property
    def takes_system(self) -> bool:
        """Whether a conversation may begin with a system text; where not, it is refused or merged."""
        ...

    def render(
        self,
        messages: Iterable[ChatMessage | Mapping[str, Any]],
        tools: Sequence[Tool | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        *,
        merge_system: bool = False,
        strict: bool = False,
        continue_final_message: bool = False,
        parse_control_tokens: bool = False,
        **options: Any,
    ) -> Prompt:
        """The prompt of a conversation.

        `merge_system` puts a system text into a user turn where the family has no place for it; otherwise that raises
        UnsupportedRole. Turns of one role in a row are joined where the family demands that roles alternate; `strict`
        raises TemplateError instead. `continue_final_message` ends the prompt where the text of the last message, an
        assistant's, ends, for the model to go on with it. `parse_control_tokens` takes control tokens that stand in the
        texts for control tokens: unsafe, whoever writes a text can then end the turn and speak as another. `options`
        are the family's own; UnsupportedInput for unknown ones and for images.
        """
        ...
