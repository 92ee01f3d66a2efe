"""Chat templates in Jinja, the tokenizer's own or the user's: sandboxed, and safe from control tokens in content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time
from functools import cached_property
from typing import Any

from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families import turns as fitting
from chatlocal.engine.families.at_fault import message_at_fault
from chatlocal.engine.families.continuing import open_last, open_thinking, up_to_mark
from chatlocal.engine.families.control import control_tokens, markup_of
from chatlocal.engine.families.flags import check_flags
from chatlocal.engine.families.limits import LimitPassed
from chatlocal.engine.families.neutral import Neutralizer, strings
from chatlocal.engine.families.probing import Template
from chatlocal.engine.families.prompt import Markup, Part, Prompt, Text
from chatlocal.engine.families.shown_tools import shown_tools
from chatlocal.engine.families.tool_format import tool_format
from chatlocal.engine.families.turn_starts import answer_ends, turn_starts
from chatlocal.engine.messages import ChatMessage, Tool, read_messages

_OPEN_THINKING = re.compile(r"<think>\s*\Z")
_BARS = re.compile(r"<([|｜]).+\1>")


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
        continue_final_message: bool = False,
        parse_control_tokens: bool = False,
        **options: Any,
    ) -> Prompt:
        """See Family.render; `options` are variables that the template reads, such as `enable_thinking`.

        For a template that asks for the time (`strftime_now`) there is `today`, the day that it shall write, as a date
        or "2024-07-26"; a variable of that name, in a template that reads one, comes before it.
        """
        check_flags(
            merge_system=merge_system,
            strict=strict,
            continue_final_message=continue_final_message,
            parse_control_tokens=parse_control_tokens,
            add_generation_prompt=add_generation_prompt,
        )
        declared = shown_tools(tools)
        template = self._tool_use if declared else self._default
        moment = _moment(template, options)
        _check_options(template, options)
        turns, places = _fit(template, read_messages(messages), merge_system, strict)
        _check_calls(template, turns, places)

        given: dict[str, Any] = {"tools": [_openai_shape(tool) for tool in declared] or None, **options}
        opened, mark = "", None
        if continue_final_message:
            opened = open_thinking(turns[-1].text)
            turns, mark = open_last(turns, *strings(given))
        variables = {
            **given,
            "messages": [template.message(turn) for turn in turns],
            "add_generation_prompt": add_generation_prompt and mark is None,
        }

        def rendered(shown: Neutralizer) -> str:
            """What the template writes of content made neutral. TemplateError names the message at fault."""
            neutral = self._neutral(shown, variables)
            try:
                return template.render(neutral, moment)
            except TemplateError as error:
                reason = shown.restored(str(error)).replace(mark or "", "")
                raise TemplateError(f"{_at_fault(template, neutral, moment, error, places)}: {reason}") from error

        neutralizer = Neutralizer(self._control, variables)
        # Content that nothing is kept out of may say what it likes.
        written = rendered(Neutralizer((), ()) if parse_control_tokens else neutralizer)
        parts: tuple[Part, ...] = neutralizer.cut(written, self._special)
        if not parse_control_tokens and neutralizer.could_be_put_together():
            # A template that takes something out of a content can join what stood around it to a control token.
            careful = Neutralizer(self._control, variables, careful=True)
            again = careful.cut(rendered(careful), self._special)
            parts = parts if _markup_texts(parts) == _markup_texts(again) else again
        if mark is not None:
            parts = up_to_mark(parts, mark)
            opened = next((thought for thought in (opened, opened.rstrip()) if _end_with(parts, thought)), "")
        elif add_generation_prompt and (found := _OPEN_THINKING.search(written)):
            opened = found[0]
        return Prompt(
            parts=parts,
            stop_strings=self._stop_strings,
            next_turn=self._next_turn,
            opened=opened,
            control=self._markup,
        )

    def _neutral(self, neutralizer: Neutralizer, variables: dict[str, Any]) -> dict[str, Any]:
        others = neutralizer.neutral({name: value for name, value in variables.items() if name != "messages"})
        messages = [self._neutral_message(neutralizer, message) for message in variables["messages"]]
        return {**others, "messages": messages}

    def _neutral_message(self, neutralizer: Neutralizer, message: dict[str, Any]) -> dict[str, Any]:
        # In an assistant's turn <think> or <tool_call> is the model's own, and templates look for it there.
        keep = self._markup - self._special if message["role"] == "assistant" else frozenset()
        neutral = {key: neutralizer.neutral(value) for key, value in message.items() if key not in _WRITTEN}
        for key in _WRITTEN & message.keys():
            neutral[key] = neutralizer.neutral(message[key], keep=keep, edges=True)
        return {key: neutral[key] for key in message}

    @cached_property
    def _markup(self) -> frozenset[str]:
        texts = {text for template in (self._default, self._tool_use) for text in (template.literals, template.written)}
        return markup_of(self._tokenizer, sorted(texts))

    @cached_property
    def _control(self) -> tuple[str, ...]:
        return tuple(control_tokens(self._tokenizer, self._markup))

    @cached_property
    def _special(self) -> frozenset[str]:
        """Those that are marked special, or spelled like it: DeepSeek's <｜User｜> is not marked."""
        added = self._tokenizer.added_tokens_decoder.values()
        return frozenset(token.content for token in added if token.special or _BARS.fullmatch(token.content))

    @cached_property
    def _after_answers(self) -> list[tuple[Markup | Text, ...]]:
        """What follows answers in the template, cut at control tokens."""
        neutralizer = Neutralizer(self._control, ())
        return [neutralizer.cut(text, self._special) for text in self._default.after_answers]

    @cached_property
    def _stop_strings(self) -> tuple[str, ...]:
        """The control token that follows an assistant's turn, one that is marked special, and the tokenizer's end."""
        after = [part for part in (self._after_answers or [()])[0] if isinstance(part, Markup)]
        first = next((part.text for part in after), None)
        special = next((part.text for part in after if part.special), None)
        end = getattr(self._tokenizer, "eos_token", None)
        return tuple(dict.fromkeys(stop for stop in (first, special, end) if stop))

    @cached_property
    def _next_turn(self) -> tuple[str, ...]:
        """The plain text that ends an answer, where no control token does."""
        leads = ["".join(part.text for part in parts[:1] if isinstance(part, Text)) for parts in self._after_answers]
        if any(isinstance(part, Markup) for parts in self._after_answers for part in parts):
            return answer_ends(leads)
        return turn_starts(leads)


_WRITTEN = frozenset({"content", "reasoning_content", "thinking"})


def _markup_texts(parts: Iterable[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, Markup)]


def _end_with(parts: Iterable[Part], text: str) -> bool:
    return "".join(part.text for part in parts).endswith(text)


def _moment(template: Template, options: dict[str, Any]) -> datetime:
    """The moment that the template is to write; takes `today` out of the options where it means that."""
    if "today" not in options or "today" in template.options or not template.tells_time:
        return datetime.now()
    today = options.pop("today")
    try:
        day = datetime.fromisoformat(today) if isinstance(today, str) else today
        return day if isinstance(day, datetime) else datetime.combine(day, time())
    except (TypeError, ValueError) as error:
        raise UnsupportedInput(f"today takes a datetime.date or a text such as '2024-07-26', got {today!r}.") from error


def _check_options(template: Template, options: Mapping[str, Any]) -> None:
    unknown = sorted(options.keys() - template.options)
    if unknown:
        read = template.options | ({"today"} if template.tells_time else set())
        known = ", ".join(sorted(read)) or "none"
        raise UnsupportedInput(f"The chat template reads no {', '.join(unknown)}; its options are: {known}.")


def _fit(
    template: Template, turns: tuple[ChatMessage, ...], merge_system: bool, strict: bool
) -> tuple[tuple[ChatMessage, ...], list[int]]:
    """The turns as the template takes them, and for each the index of its message, or of the first of several."""
    refused = [index for index, turn in enumerate(turns) if turn.role == "system" and not template.takes_system(index)]
    if refused and not merge_system:
        raise UnsupportedRole(
            f"The chat template has no place for the system message at index {refused[0]}: put its text into a user"
            " message, or pass merge_system=True to have that done."
        )
    places = sorted({*range(len(turns))} - {*refused})
    if refused:
        turns = fitting.merge_system(turns, frozenset(refused).__contains__)
        places += refused[-1:] if len(turns) > len(places) else []
    repeated = fitting.repeated_role(turns)
    if repeated is None or template.takes_repeated_roles:
        return turns, places
    if strict:
        raise TemplateError(
            f"The chat template wants user and assistant in turns, and message {places[repeated]} is another"
            f" {turns[repeated].role} message: join it with the one before it."
        )
    firsts = [index == 0 or fitting.repeated_role(turns[index - 1 : index + 1]) is None for index in range(len(turns))]
    return fitting.join_repeated(turns), [place for place, first in zip(places, firsts, strict=True) if first]


def _check_calls(template: Template, turns: tuple[ChatMessage, ...], places: Sequence[int]) -> None:
    calling = next((place for place, turn in zip(places, turns, strict=True) if turn.tool_calls), None)
    if calling is not None and not template.renders_calls:
        raise UnsupportedInput(
            f"Message {calling} holds tool calls, which the chat template does not write: choose a model whose"
            " template knows tools, or write the calls into the text."
        )
    result = next((place for place, turn in zip(places, turns, strict=True) if turn.role == "tool"), None)
    if result is not None and not template.renders_results:
        raise UnsupportedRole(
            f"Message {result} is the result of a tool, which the chat template does not write: choose a model whose"
            " template knows tools, or write the result into a user message."
        )


def _openai_shape(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": {**function, "strict": True} if tool.strict else function}


def _at_fault(
    template: Template, variables: dict[str, Any], moment: datetime, error: TemplateError, places: Sequence[int]
) -> str:
    """What the template cannot render: a message, or all of them together."""
    messages = variables["messages"]

    def fails(start: int, end: int) -> bool:
        try:
            template.render({**variables, "messages": messages[start:end], "add_generation_prompt": False}, moment)
        except TemplateError as again:
            return str(again) == str(error)
        return False

    stopped = isinstance(error.__cause__, LimitPassed)  # not again, and again
    found = None if stopped else message_at_fault(len(messages), fails, said=error.__cause__ is None)
    if found is None:
        return "The chat template cannot render these messages"
    return f"The chat template cannot render message {places[found]} ({messages[found]['role']})"
