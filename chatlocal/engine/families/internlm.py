"""InternLM 1, as `build_inputs` of its repository wrote prompts from December 2023 on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor


@dataclass(frozen=True)
class InternLM(NativeFamily):
    """Each past question begins with <s>, the last one only when it is the first. There is no system turn."""

    name: str = "internlm"
    system: System = "nowhere"
    alternates: bool = True
    special: tuple[str, ...] = ("<s>", "</s>", "<eoh>", "<eoa>")
    stop_strings: tuple[str, ...] = ("<eoa>", "</s>")
    next_turn: tuple[str, ...] = ("<|User|>:",)
    made_for: tuple[MadeFor, ...] = (MadeFor(("internlm",)),)

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        last = len(chat.turns) - 1
        for index, turn in enumerate(chat.turns):
            if turn.role == "user":
                begin = "<s>" if index == 0 or index < last else ""
                yield from self.parts(begin + "<|User|>:{}<eoh>\n", turn.text)
            else:
                yield from self.parts("<|Bot|>:{}<eoa>\n", turn.text)
        if chat.add_generation_prompt:
            yield from self.parts("<|Bot|>:")


FAMILIES = (InternLM(),)
