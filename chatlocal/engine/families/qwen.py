"""Qwen-1, as `make_context` of its repository writes it: always a system turn, no line break behind the last turn.

Functions are called by ReAct; see react.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.react import THOUGHT, with_functions
from chatlocal.engine.families.recognition import MadeFor

_OBSERVATION = "\nObservation:"


@dataclass(frozen=True)
class Qwen(NativeFamily):
    """Questions and answers in turns; an empty answer keeps its end. The stops are <|im_end|> and <|im_start|> too."""

    name: str = "qwen"
    renders_tools: ClassVar[bool] = True
    tool_format: ClassVar[str] = "qwen_react"
    system: System = "first"
    alternates: bool = True
    roles: frozenset[str] = frozenset({"user", "assistant", "tool"})
    special: tuple[str, ...] = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    stop_strings: tuple[str, ...] = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
    made_for: tuple[MadeFor, ...] = (
        MadeFor(
            ("qwen",), dedicated=True, because="its prompts are those of its repository's code, functions included"
        ),
    )

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        talk = chat.talk
        system = "You are a helpful assistant." if chat.system is None else chat.system
        if self._acts(chat):
            system = system.lstrip("\n").rstrip()
            talk = with_functions(talk, chat.tools)
        yield from self.parts("<|im_start|>system\n{}", system)
        for turn in talk:
            yield from self.parts(f"<|im_end|>\n<|im_start|>{turn.role}\n{{}}", turn.text)
        if not self.opened(chat):
            yield from self.parts("<|im_end|>")
            if chat.add_generation_prompt:
                yield from self.parts("\n<|im_start|>assistant\n")

    def opened(self, chat: Chat) -> str:
        """See Prompt.opened: after a function's result the answer goes on with a thought."""
        return THOUGHT if chat.turns[-1].role == "tool" else ""

    def endings(self, chat: Chat) -> tuple[str, ...]:
        """See Prompt.next_turn: the result of a function is not the model's to write."""
        return (_OBSERVATION,) if self._acts(chat) else ()

    def _acts(self, chat: Chat) -> bool:
        return bool(chat.tools) or any(turn.role == "tool" or turn.tool_calls for turn in chat.turns)


FAMILIES = (Qwen(),)
