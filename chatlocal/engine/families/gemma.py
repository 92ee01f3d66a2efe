"""Gemma: texts without white space around them, "model" for the assistant, no system turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor


@dataclass(frozen=True)
class Gemma(NativeFamily):
    """Gemma 1 and 2 refuse a system text; Gemma 3 puts it, a blank line apart, before the text of the first turn."""

    name: str
    system: System = "nowhere"
    alternates: bool = True
    special: tuple[str, ...] = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
    stop_strings: tuple[str, ...] = ("<end_of_turn>", "<eos>")
    made_for: tuple[MadeFor, ...] = ()

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.parts("<bos>")
        before = "" if chat.system is None else f"{chat.system}\n\n"
        for turn in chat.talk:
            role = "model" if turn.role == "assistant" else "user"
            yield from self.parts(f"<start_of_turn>{role}\n{{}}<end_of_turn>\n", before + turn.text.strip())
            before = ""
        if chat.add_generation_prompt:
            yield from self.parts("<start_of_turn>model\n")


FAMILIES = (
    Gemma("gemma", made_for=(MadeFor(("gemma",)),)),
    Gemma("gemma2", made_for=(MadeFor(("gemma2",)),)),
    Gemma("gemma3", system="first", made_for=(MadeFor(("gemma3", "gemma3_text")),)),
)
