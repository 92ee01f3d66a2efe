"""What the families that are written here have in common: how a conversation is checked and fitted.

A family says what it takes and writes the turns; see table.py for those that are rows, and qwen.py for one with rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families import turns as fitting
from chatlocal.engine.families.continuing import open_last, open_thinking, up_to_mark
from chatlocal.engine.families.flags import check_flags
from chatlocal.engine.families.prompt import Markup, Part, Prompt, Text
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.families.shown_tools import shown_tools
from chatlocal.engine.families.typed_control import with_typed_control_tokens
from chatlocal.engine.messages import ChatMessage, Tool, read_messages

_THINK = "<think>"
# Options that turn thinking on.
_SWITCHES = frozenset({"enable_thinking", "thinking"})

System = Literal["anywhere", "first", "nowhere"]


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as a family gets it: fitted to what the family takes."""

    turns: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    add_generation_prompt: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system(self) -> str | None:
        """The text of a system turn that stands first, "" included; None when there is none."""
        return self.turns[0].text if self.turns and self.turns[0].role == "system" else None

    @property
    def talk(self) -> tuple[ChatMessage, ...]:
        """The turns behind a system turn that stands first."""
        return self.turns if self.system is None else self.turns[1:]


class NativeFamily:
    """The base of a family: a subclass gives the class variables that differ and `write`.

    `system` is where a system turn may stand; `alternates` that user and assistant must take turns, the user first;
    `roles` are the others besides system that it can write. `special` and `markup` are its control tokens, those that
    tokenizers mark special and those that they do not. `options` are the names that `render` takes, with defaults.
    `made_for` are the models that get the family without being asked.
    """

    name: str
    renders_tools: ClassVar[bool] = False
    system: System = "anywhere"
    alternates: bool = False
    roles: frozenset[str] = frozenset({"user", "assistant"})
    special: tuple[str, ...] = ()
    markup: tuple[str, ...] = ()
    stop_strings: tuple[str, ...] = ()
    next_turn: tuple[str, ...] = ()
    begins: bool = False
    options: Mapping[str, Any] = {}
    made_for: tuple[MadeFor, ...] = ()
    tool_format: ClassVar[str | None] = None
    source: ClassVar[str] = "written in chatlocal"

    @property
    def takes_system(self) -> bool:
        """See Family.takes_system."""
        return self.system != "nowhere"

    def write(self, chat: Chat) -> Iterable[Part]:
        """The parts of the prompt."""
        raise NotImplementedError

    def read(self, messages: Iterable[ChatMessage | Mapping[str, Any]]) -> tuple[ChatMessage, ...]:
        """The conversation that is given, in whatever shapes the family knows."""
        return read_messages(messages)

    def opened(self, chat: Chat) -> str:
        """What the prompt opens of the answer; see Prompt."""
        return ""

    def endings(self, chat: Chat) -> tuple[str, ...]:
        """What would begin another turn; see Prompt.next_turn."""
        return self.next_turn

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
        """See Family.render."""
        check_flags(
            merge_system=merge_system,
            strict=strict,
            continue_final_message=continue_final_message,
            parse_control_tokens=parse_control_tokens,
            add_generation_prompt=add_generation_prompt,
        )
        if unknown := sorted(options.keys() - self.options.keys()):
            known = ", ".join(sorted(self.options)) or "none"
            raise UnsupportedInput(f"The {self.name} format reads no {', '.join(unknown)}; its options are: {known}.")
        turns = self._fit(self.read(messages), merge_system, strict)
        chat = Chat(turns, shown_tools(tools), add_generation_prompt, {**self.options, **options})
        if continue_final_message:
            opened = open_thinking(turns[-1].text)
            parts = self._continued(chat, opened)
        else:
            opened = self.opened(chat) if add_generation_prompt else ""
            parts = tuple(self.write(chat))
        if parse_control_tokens:
            parts = tuple(with_typed_control_tokens(parts, (*self.special, *self.stop_strings), self.markup))
        return Prompt(
            parts,
            stop_strings=self.stop_strings,
            next_turn=self.endings(chat),
            opened=opened,
            control=frozenset((*self.special, *self.markup, *self.stop_strings)),
            begins=self.begins,
        )

    def _continued(self, chat: Chat, opened: str) -> tuple[Part, ...]:
        """The prompt that ends with the text of the last answer; `opened` is the thinking that is open in it."""
        marked, mark = open_last(chat.turns)
        if opened and _THINK in (*self.special, *self.markup) and chat.turns[-1].text.lstrip() == opened:
            return (*self._thinking(chat), Text(opened.removeprefix(_THINK)))
        return up_to_mark(self.write(replace(chat, turns=marked, add_generation_prompt=False)), mark)

    def _thinking(self, chat: Chat) -> tuple[Part, ...]:
        """The prompt up to the mark that opens the thinking of the last answer, with that mark."""
        switches = dict.fromkeys(_SWITCHES & self.options.keys(), True)
        asking = replace(chat, turns=chat.turns[:-1], add_generation_prompt=True, options={**chat.options, **switches})
        parts = tuple(self.write(asking))
        # Some formats open the thinking themselves, with a line break that the text to go on with has as well.
        if parts[-2:-1] == (self._think,) and parts[-1].text.isspace():
            parts = parts[:-1]
        return parts if parts[-1:] == (self._think,) else (*parts, self._think)

    @property
    def _think(self) -> Markup:
        return Markup(_THINK, _THINK in self.special)

    def parts(self, pattern: str, *contents: str) -> Iterator[Part]:
        """A piece of the format with its contents, which stand for "{}" in it one after the other."""
        pieces = pattern.split("{}")
        for place, piece in enumerate(pieces):
            yield from cut(piece, self.special, self.markup)
            if place < len(contents):
                yield Text(contents[place])

    def _fit(self, turns: tuple[ChatMessage, ...], merge_system: bool, strict: bool) -> tuple[ChatMessage, ...]:
        refused = [index for index, turn in enumerate(turns) if turn.role == "system" and not self._takes(index)]
        if refused and not merge_system:
            raise UnsupportedRole(
                f"The {self.name} format has no place for the system message at index {refused[0]}: put its text into a"
                " user message, or pass merge_system=True to have that done."
            )
        if refused:
            turns = fitting.merge_system(turns, lambda index: index in refused)
        for index, turn in enumerate(turns):
            self._check(index, turn)
        return self._alternating(turns, strict) if self.alternates else turns

    def _takes(self, index: int) -> bool:
        return self.system == "anywhere" or (self.system == "first" and index == 0)

    def _check(self, index: int, turn: ChatMessage) -> None:
        if turn.role not in ("system", *self.roles):
            raise UnsupportedRole(
                f"The {self.name} format has no place for the {turn.role} message at index {index}: put its text into a"
                " user message, or choose a model with a format for tools."
            )
        if turn.tool_calls and not self.renders_tools:
            raise UnsupportedInput(
                f"Message {index} holds tool calls, which the {self.name} format cannot write: choose a model whose"
                " format knows tools, or write the calls into the text."
            )

    def _alternating(self, turns: tuple[ChatMessage, ...], strict: bool) -> tuple[ChatMessage, ...]:
        repeated = fitting.repeated_role(turns)
        if repeated is not None and strict:
            raise TemplateError(
                f"The {self.name} format wants user and assistant in turns, and message {repeated} is another"
                f" {turns[repeated].role} message: join it with the one before it."
            )
        turns = fitting.join_repeated(turns)
        first = next((index for index, turn in enumerate(turns) if turn.role != "system"), None)
        if first is None or turns[first].role != "user":
            at = "no message is" if first is None else f"message {first} is not"
            raise TemplateError(f"The {self.name} format wants a user message first, and {at} one: put one there.")
        return turns


@lru_cache(maxsize=512)
def cut(pattern: str, special: tuple[str, ...], markup: tuple[str, ...]) -> tuple[Part, ...]:
    """A text of the format itself, cut at its control tokens."""
    longest_first = sorted((*special, *markup), key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", pattern) if longest_first else [pattern]
    return tuple(
        Markup(piece, piece in special) if place % 2 else Text(piece) for place, piece in enumerate(pieces) if piece
    )
