"""Qwen3 and QwQ: ChatML with thinking in the answers. The rules are those of the published chat templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from chatlocal.engine.families.chatml import ChatML
from chatlocal.engine.families.native import Chat
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.families.thinking import last_question, split_thinking
from chatlocal.engine.messages import ChatMessage


@dataclass(frozen=True)
class Qwen3(ChatML):
    """Past answers lose their thinking; answers after the last question keep it, the last one even when it is empty.

    Option `enable_thinking` (default True): False opens the answer with an empty thought. `always_thinks`: the answer
    is opened with <think> instead.
    """

    always_thinks: bool = False
    markup: tuple[str, ...] = ("<think>", "</think>")
    options: dict[str, Any] = field(default_factory=lambda: {"enable_thinking": True})
    roles: frozenset[str] = frozenset({"user", "assistant"})

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        question = last_question(chat.turns)
        for index, turn in enumerate(chat.turns):
            if turn.role != "assistant":
                yield from self.turn(turn.role, turn.text)
                continue
            thought, answer = split_thinking(turn)
            if index > question and (thought or index == len(chat.turns) - 1):
                pattern = "<|im_start|>assistant\n<think>\n{}\n</think>\n\n{}<|im_end|>\n"
                yield from self.parts(pattern, thought.strip("\n"), answer.lstrip("\n"))
            else:
                yield from self.turn("assistant", answer)
        if chat.add_generation_prompt:
            yield from self.parts("<|im_start|>assistant\n" + self._opening(chat))

    def opened(self, chat: Chat) -> str:
        """See Prompt.opened."""
        return self._opening(chat) if self.always_thinks else ""

    def _opening(self, chat: Chat) -> str:
        if self.always_thinks:
            return "<think>\n"
        return "" if chat.options["enable_thinking"] else "<think>\n\n</think>\n\n"


@dataclass(frozen=True)
class QwQ(ChatML):
    """Past answers lose their thinking, and the answer is opened with <think>."""

    markup: tuple[str, ...] = ("<think>", "</think>")
    roles: frozenset[str] = frozenset({"user", "assistant"})

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from super().write(chat)
        if chat.add_generation_prompt:
            yield from self.parts("<think>\n")

    def text(self, turn: ChatMessage) -> str:
        """What is written of a turn."""
        return turn.text.split("</think>")[-1].lstrip("\n") if turn.role == "assistant" else turn.text

    def opened(self, chat: Chat) -> str:
        """See Prompt.opened."""
        return "<think>\n"


FAMILIES = (
    Qwen3("qwen3", made_for=(MadeFor(("qwen3", "qwen3_moe")),)),
    Qwen3(
        "qwen3-thinking-2507",
        always_thinks=True,
        options={},
        made_for=(MadeFor(("qwen3", "qwen3_moe"), "thinking-2507"),),
    ),
    QwQ("qwq", made_for=(MadeFor(("qwen2",), "qwq"),)),
)
