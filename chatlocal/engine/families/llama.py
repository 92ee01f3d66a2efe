"""Llama 2 as Meta's `chat_completion` writes it, and Llama 3.1 to 3.3 with their date in the system turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.families.row import on_their_own


@dataclass(frozen=True)
class Llama2(NativeFamily):
    """Each question with its answer is a text of its own between <s> and </s>; the system text is part of the first."""

    name: str = "llama2"
    system: System = "first"
    alternates: bool = True
    special: tuple[str, ...] = ("<s>", "</s>")
    stop_strings: tuple[str, ...] = ("</s>",)
    next_turn: tuple[str, ...] = ("[INST]",)
    made_for: tuple[MadeFor, ...] = (MadeFor(("llama",), "llama-?2"),)

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        return on_their_own(self._parts(chat))

    def _parts(self, chat: Chat) -> Iterator[Part]:
        before = "" if chat.system is None else f"<<SYS>>\n{chat.system}\n<</SYS>>\n\n"
        for turn in chat.talk:
            if turn.role == "user":
                yield from self.parts("<s>")
                # In one piece, so that what a user types is text here as elsewhere.
                yield from self.parts("[INST] {} [/INST]", (before + turn.text).strip())
                before = ""
            else:
                yield from self.parts(" {} </s>", turn.text.strip())


@dataclass(frozen=True)
class Llama31(NativeFamily):
    """Always a system turn, which tells the date; texts without white space around them.

    Option `date_string`: the date as the model reads it, such as "26 Jul 2024".
    """

    name: str
    today: Callable[[], str] = lambda: "26 Jul 2024"
    special: tuple[str, ...] = (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        *("<|eom_id|>", "<|python_tag|>"),
    )
    stop_strings: tuple[str, ...] = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
    options: Mapping[str, Any] = field(default_factory=lambda: {"date_string": None})
    made_for: tuple[MadeFor, ...] = ()

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        day = chat.options["date_string"] or self.today()
        about = f"Cutting Knowledge Date: December 2023\nToday Date: {day}\n\n"
        yield from self.parts("<|begin_of_text|>")
        yield from self._turn("system", about + (chat.system or "").strip())
        for turn in chat.talk:
            yield from self._turn(turn.role, turn.text.strip())
        if chat.add_generation_prompt:
            yield from self.parts("<|start_header_id|>assistant<|end_header_id|>\n\n")

    def _turn(self, role: str, text: str) -> Iterator[Part]:
        return self.parts(f"<|start_header_id|>{role}<|end_header_id|>\n\n{{}}<|eot_id|>", text)


def _today() -> str:
    return date.today().strftime("%d %b %Y")


# Only Llama 3.2's template asks for the day of today; the others have one written in them.
FAMILIES = (
    Llama2(),
    Llama31("llama3.1", made_for=(MadeFor(("llama",), r"llama-?3\.1"),)),
    Llama31("llama3.2", today=_today, made_for=(MadeFor(("llama", "mllama"), r"llama-?3\.2"),)),
    Llama31("llama3.3", made_for=(MadeFor(("llama",), r"llama-?3\.3"),)),
)
