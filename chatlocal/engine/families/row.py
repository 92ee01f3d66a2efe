"""A family that is only prefixes, suffixes and stops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Markup, Part, Text
from chatlocal.engine.families.recognition import MadeFor


@dataclass(frozen=True)
class Row(NativeFamily):
    """A family of the table.

    `begin` opens every prompt; `system_turn`, `user` and `assistant` are the turns, `answer` asks for an answer and
    `end` stands in its place where none is asked for. `default_system` is the text of the system turn where the
    conversation has none, None for no turn; `after_system` comes behind one. `between` comes before each user turn that
    follows an answer. `trims`: texts are written without white space around them. `skips_empty` are the roles whose
    turns are left out when they have no text. `always_asks`: the published template asks for an answer even when it is
    told not to. `own`: texts are tokenized on their own, each turn ("turn") or each stretch between two control tokens
    ("stretch"), as the reference does.
    """

    name: str
    user: str
    assistant: str
    answer: str
    begin: str = ""
    end: str = ""
    system: System = "first"
    system_turn: str = ""
    default_system: str | None = None
    after_system: str = ""
    between: str = ""
    special: tuple[str, ...] = ()
    markup: tuple[str, ...] = ()
    stop_strings: tuple[str, ...] = ()
    next_turn: tuple[str, ...] = ()
    alternates: bool = False
    begins: bool = False
    trims: bool = False
    skips_empty: frozenset[str] = frozenset()
    always_asks: bool = False
    own: Literal["", "turn", "stretch"] = ""
    made_for: tuple[MadeFor, ...] = ()

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        pieces = self._pieces(chat)
        if self.own == "turn":
            return (part for piece in pieces for part in on_their_own(piece))
        together = (part for piece in pieces for part in piece)
        return on_their_own(together) if self.own == "stretch" else together

    def _pieces(self, chat: Chat) -> Iterator[Iterable[Part]]:
        yield self.parts(self.begin)
        if self.default_system is not None and chat.system is None:
            yield from self._system(self.default_system)
        before = ""
        for turn in chat.turns:
            text = turn.text.strip() if self.trims else turn.text
            if not text and turn.role in self.skips_empty:
                continue
            if turn.role == "user" and before == "assistant":
                yield self.parts(self.between)
            if turn.role == "system":
                yield from self._system(text)
            else:
                yield self.parts(self.user if turn.role == "user" else self.assistant, text)
            before = turn.role
        yield self.parts(self.answer if chat.add_generation_prompt or self.always_asks else self.end)

    def _system(self, text: str) -> Iterator[Iterable[Part]]:
        yield self.parts(self.system_turn, text)
        yield self.parts(self.after_system)


def on_their_own(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts with every stretch of text between control tokens tokenized on its own."""
    stretch = ""
    for part in parts:
        if isinstance(part, Markup):
            if stretch:
                yield Text(stretch, own=True, gap="")
            stretch = ""
            yield part
        else:
            stretch += part.text
    if stretch:
        yield Text(stretch, own=True, gap="")
