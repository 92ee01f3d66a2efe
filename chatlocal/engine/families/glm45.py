"""GLM-4.5: thinking in every answer, an empty one where there is none. The rules are those of its chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chatlocal.engine.families.native import Chat, NativeFamily
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.families.thinking import split_thinking
from chatlocal.engine.messages import ChatMessage

_NO_THINKING = "/nothink"


@dataclass(frozen=True)
class GLM45(NativeFamily):
    """Answers after the last question keep their thinking, those before have an empty one.

    Option `enable_thinking` (default True): False puts "/nothink" behind each question and opens the answer with an
    empty thought.
    """

    name: str = "glm4.5"
    special: tuple[str, ...] = (
        *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
    )
    markup: tuple[str, ...] = ("<think>", "</think>", _NO_THINKING)
    stop_strings: tuple[str, ...] = ("<|endoftext|>", "<|user|>", "<|observation|>")
    options: Mapping[str, Any] = field(default_factory=lambda: {"enable_thinking": True})
    made_for: tuple[MadeFor, ...] = (MadeFor(("glm4_moe",)),)

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.parts("[gMASK]<sop>")
        users = [index for index, turn in enumerate(chat.turns) if turn.role == "user"]
        for index, turn in enumerate(chat.turns):
            if turn.role == "assistant":
                yield from self._answer(turn, index > (users[-1] if users else -1))
            else:
                yield from self.parts(f"<|{turn.role}|>\n{{}}", turn.text)
                if turn.role == "user" and not chat.options["enable_thinking"]:
                    yield from self.parts("" if turn.text.endswith(_NO_THINKING) else _NO_THINKING)
        if chat.add_generation_prompt:
            yield from self.parts("<|assistant|>" + ("" if chat.options["enable_thinking"] else "\n<think></think>"))

    def _answer(self, turn: ChatMessage, keeps: bool) -> Iterator[Part]:
        thought, answer = split_thinking(turn)
        yield from self.parts("<|assistant|>\n<think>{}</think>", thought.strip() if keeps else "")
        if answer.strip():
            yield from self.parts("\n{}", answer.strip())


FAMILIES = (GLM45(),)
