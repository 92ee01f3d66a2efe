"""Qwen-1, as `make_context` of its repository writes it: always a system turn, no line break behind the last turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor


@dataclass(frozen=True)
class Qwen(NativeFamily):
    """Questions and answers in turns; an empty answer keeps its end. The stops are <|im_end|> and <|im_start|> too."""

    name: str = "qwen"
    system: System = "first"
    alternates: bool = True
    special: tuple[str, ...] = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    stop_strings: tuple[str, ...] = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
    made_for: tuple[MadeFor, ...] = (
        MadeFor(("qwen",), dedicated=True, because="its tokenizer brings no chat template of its own"),
    )

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        system = "You are a helpful assistant." if chat.system is None else chat.system
        yield from self.parts("<|im_start|>system\n{}<|im_end|>", system)
        for turn in chat.talk:
            yield from self.parts(f"\n<|im_start|>{turn.role}\n{{}}<|im_end|>", turn.text)
        if chat.add_generation_prompt:
            yield from self.parts("\n<|im_start|>assistant\n")


FAMILIES = (Qwen(),)
