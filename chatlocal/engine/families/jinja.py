"""Chat templates in Jinja, the tokenizer's own or the user's: sandboxed, and safe from control tokens in content."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families import turns as fitting
from chatlocal.engine.families.control import control_tokens, markup_of
from chatlocal.engine.families.neutral import Neutralizer
from chatlocal.engine.families.probing import Template
from chatlocal.engine.families.prompt import Markup, Prompt
from chatlocal.engine.families.tool_format import tool_format
from chatlocal.engine.messages import ChatMessage, Tool, read_messages, read_tools

_OPEN_THINKING = re.compile(r"<think>\s*\Z")


class JinjaFamily:
    """A chat template with its tokenizer. `templates` is one template, or several by name: "default", "tool_use".

    TemplateError when a template is not valid Jinja.
    """

    name = "jinja"

    def __init__(self, tokenizer: Any, templates: str | Mapping[str, str]) -> None:
        named = {"default": templates} if isinstance(templates, str) else dict(templates)
        if "default" not in named:
            raise TemplateError(f"No chat template is named 'default', only {sorted(named)}: pass one as template=.")
        self._tokenizer = tokenizer
        default = named["default"]
        variables = dict(getattr(tokenizer, "special_tokens_map", {}))
        self._default = Template(default, variables)
        self._tool_use = Template(named["tool_use"], variables) if "tool_use" in named else self._default

    @property
    def renders_tools(self) -> bool:
        """Whether the template writes tools that it is given; found out once with a tool of our own."""
        return self._tool_use.renders_tools

    @property
    def takes_system(self) -> bool:
        """See Family.takes_system."""
        return self._default.takes_system(0)

    @property
    def tool_format(self) -> str | None:
        """See Family.tool_format."""
        return tool_format(self._tool_use.source) if self.renders_tools else None

    @property
    def source(self) -> str:
        """See Family.source."""
        return f"a chat template of {len(self._default.source):,} characters"

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
        """See Family.render; `options` are variables that the template reads, such as `enable_thinking`."""
        turns = read_messages(messages)
        declared = read_tools(tools)
        template = self._tool_use if declared else self._default
        _check_options(template, options)
        turns = _fit(template, turns, merge_system, strict)
        _check_calls(template, turns)

        control = self._control
        variables: dict[str, Any] = {
            "messages": [template.message(turn) for turn in turns],
            "tools": [_openai_shape(tool) for tool in declared] or None,
            **options,
        }
        neutralizer = Neutralizer(control, variables)
        neutral = neutralizer.neutral({key: value for key, value in variables.items() if key != "messages"})
        neutral["messages"] = [self._neutral_message(neutralizer, message) for message in variables["messages"]]
        neutral["add_generation_prompt"] = add_generation_prompt
        try:
            rendered = template.render(neutral)
        except TemplateError as error:
            raise TemplateError(_explained(template, neutral, str(error))) from error
        opened = _OPEN_THINKING.search(rendered) if add_generation_prompt else None
        return Prompt(
            parts=neutralizer.cut(rendered),
            stop_strings=self._stop_strings,
            opened=opened[0] if opened else "",
            control=self._markup,
        )

    def _neutral_message(self, neutralizer: Neutralizer, message: dict[str, Any]) -> dict[str, Any]:
        # In an assistant's turn <think> or <tool_call> is the model's own, and templates look for it there.
        keep = self._markup - self._special if message["role"] == "assistant" else frozenset()
        neutral = {key: neutralizer.neutral(value) for key, value in message.items() if key not in _WRITTEN}
        for key in _WRITTEN & message.keys():
            neutral[key] = neutralizer.neutral(message[key], keep=keep, edges=True)
        return {key: neutral[key] for key in message}

    @cached_property
    def _markup(self) -> frozenset[str]:
        sources = {self._default.source, self._tool_use.source}
        return markup_of(self._tokenizer, sorted(sources))

    @cached_property
    def _control(self) -> tuple[str, ...]:
        return tuple(control_tokens(self._tokenizer, self._markup))

    @cached_property
    def _special(self) -> frozenset[str]:
        return frozenset(token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special)

    @cached_property
    def _stop_strings(self) -> tuple[str, ...]:
        """The control token that follows an assistant's turn, and the tokenizer's end."""
        after = Neutralizer(self._control, "").cut(self._default.after_answer)
        turn_end = next((part.text for part in after if isinstance(part, Markup)), None)
        end = getattr(self._tokenizer, "eos_token", None)
        return tuple(dict.fromkeys(stop for stop in (turn_end, end) if stop))


_WRITTEN = frozenset({"content", "reasoning_content"})


def _check_options(template: Template, options: Mapping[str, Any]) -> None:
    unknown = sorted(options.keys() - template.options)
    if unknown:
        known = ", ".join(sorted(template.options)) or "none"
        raise UnsupportedInput(f"The chat template reads no {', '.join(unknown)}; its options are: {known}.")


def _fit(
    template: Template, turns: tuple[ChatMessage, ...], merge_system: bool, strict: bool
) -> tuple[ChatMessage, ...]:
    refused = [index for index, turn in enumerate(turns) if turn.role == "system" and not template.takes_system(index)]
    if refused and not merge_system:
        raise UnsupportedRole(
            f"The chat template has no place for the system message at index {refused[0]}: put its text into a user"
            " message, or pass merge_system=True to have that done."
        )
    if refused:
        turns = fitting.merge_system(turns, lambda index: index in refused)
    repeated = fitting.repeated_role(turns)
    if repeated is None or template.takes_repeated_roles:
        return turns
    if strict:
        raise TemplateError(
            f"The chat template wants user and assistant in turns, and message {repeated} is another"
            f" {turns[repeated].role} message: join it with the one before it."
        )
    return fitting.join_repeated(turns)


def _check_calls(template: Template, turns: tuple[ChatMessage, ...]) -> None:
    calling = next((index for index, turn in enumerate(turns) if turn.tool_calls), None)
    if calling is not None and not template.renders_calls:
        raise UnsupportedInput(
            f"Message {calling} holds tool calls, which the chat template does not write: choose a model whose"
            " template knows tools, or write the calls into the text."
        )


def _openai_shape(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": {**function, "strict": True} if tool.strict else function}


def _explained(template: Template, variables: dict[str, Any], reason: str) -> str:
    """The reason with the message at fault: the last of the shortest beginning that fails for the same reason."""
    messages = variables["messages"]

    def fails(length: int) -> bool:
        try:
            template.render({**variables, "messages": messages[:length], "add_generation_prompt": False})
        except TemplateError as error:
            return str(error) == reason
        return False

    shortest = bisect_left(range(1, len(messages) + 1), True, key=fails) + 1
    if shortest > len(messages) or not fails(shortest):
        return f"The chat template cannot render these messages: {reason}"
    role = messages[shortest - 1]["role"]
    return f"The chat template cannot render message {shortest - 1} ({role}): {reason}"
