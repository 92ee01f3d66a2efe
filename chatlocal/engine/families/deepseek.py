"""DeepSeek-V3, V3.1 and the R1 distillations. The rules are those of the published chat templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chatlocal.engine.families.native import Chat, NativeFamily
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor

_BEGIN, _END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
_USER, _ASSISTANT = "<｜User｜>", "<｜Assistant｜>"


@dataclass(frozen=True)
class DeepSeekV3(NativeFamily):
    """System texts stand together in front, a blank line apart. `forgets`: past answers lose their thinking."""

    name: str
    forgets: bool = False
    special: tuple[str, ...] = (_BEGIN, _END, _USER, _ASSISTANT)
    stop_strings: tuple[str, ...] = (_END,)
    made_for: tuple[MadeFor, ...] = ()

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.front(chat)
        for turn in chat.turns:
            if turn.role == "user":
                yield from self.parts(_USER + "{}", turn.text)
            elif turn.role == "assistant":
                text = turn.text.split("</think>")[-1] if self.forgets else turn.text
                yield from self.parts(_ASSISTANT + "{}" + _END, text)
        if chat.add_generation_prompt:
            yield from self.parts(_ASSISTANT)

    def front(self, chat: Chat) -> Iterator[Part]:
        """What stands before the first turn."""
        return self.parts(_BEGIN + "{}", "\n\n".join(turn.text for turn in chat.turns if turn.role == "system"))


@dataclass(frozen=True)
class DeepSeekV31(DeepSeekV3):
    """Answers are opened with <think> or </think>; option `thinking` (default False) says which for the next one."""

    special: tuple[str, ...] = (_BEGIN, _END, _USER, _ASSISTANT, "<think>", "</think>")
    options: Mapping[str, Any] = field(default_factory=lambda: {"thinking": False})

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.front(chat)
        asked = False
        for turn in chat.turns:
            if turn.role == "user":
                yield from self.parts(_USER + "{}", turn.text)
            elif turn.role == "assistant":
                answer = turn.text.split("</think>", 1)[-1]
                yield from self.parts((_ASSISTANT + "</think>" if asked else "") + "{}" + _END, answer)
            asked = turn.role == "user" or (asked and turn.role == "system")
        if chat.add_generation_prompt and asked:
            yield from self.parts(_ASSISTANT + ("<think>" if chat.options["thinking"] else "</think>"))

    def opened(self, chat: Chat) -> str:
        """See Prompt.opened."""
        return "<think>" if chat.options["thinking"] else ""


FAMILIES = (
    DeepSeekV3("deepseek-v3", made_for=(MadeFor(("deepseek_v3",)),)),
    DeepSeekV3("deepseek-r1-distill", forgets=True, made_for=(MadeFor(("qwen2", "llama"), "deepseek-r1-distill"),)),
    DeepSeekV31("deepseek-v3.1", made_for=(MadeFor(("deepseek_v3",), r"v3\.1"),)),
)
