"""Families that are only prefixes, suffixes and stops: a row each.

In a pattern "{}" stands for the text of the turn, and what is listed in `special` is a control token. The formats are
those of the models' own repositories or published chat templates; the comment says which where it matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Part


@dataclass(frozen=True)
class Row(NativeFamily):
    """A family of the table.

    `begin` opens every prompt; `user`, `assistant` and `system_turn` are the turns; `answer` asks for an answer.
    `default_system` is the text of the system turn where the conversation has none, None for no turn. `between` comes
    before each user turn that follows an assistant turn. `trims`: texts are written without white space around them.
    `skips_empty_answers` and `skips_empty_system` leave such turns out. `always_asks`: the published template asks for
    an answer even when it is told not to.
    """

    name: str
    user: str
    assistant: str
    answer: str
    begin: str = ""
    system_turn: str = ""
    default_system: str | None = None
    between: str = ""
    system: System = "first"
    special: tuple[str, ...] = ()
    markup: tuple[str, ...] = ()
    stop_strings: tuple[str, ...] = ()
    next_turn: tuple[str, ...] = ()
    alternates: bool = False
    begins: bool = False
    trims: bool = False
    skips_empty_answers: bool = False
    skips_empty_system: bool = False
    always_asks: bool = False
    end: str = ""

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.parts(self.begin)
        if self.default_system is not None and chat.system is None:
            yield from self.parts(self.system_turn, self.default_system)
        before = ""
        for turn in chat.turns:
            text = turn.text.strip() if self.trims else turn.text
            if turn.role == "user" and before == "assistant":
                yield from self.parts(self.between)
            before = turn.role
            if text or not self._skipped(turn.role):
                yield from self.parts(self._pattern(turn.role), text)
        if chat.add_generation_prompt or self.always_asks:
            yield from self.parts(self.answer)
        else:
            yield from self.parts(self.end)

    def _pattern(self, role: str) -> str:
        return {"system": self.system_turn, "user": self.user, "assistant": self.assistant}[role]

    def _skipped(self, role: str) -> bool:
        return self.skips_empty_answers if role == "assistant" else self.skips_empty_system and role == "system"
