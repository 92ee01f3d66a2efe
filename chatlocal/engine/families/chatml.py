"""ChatML as OpenAI published it, and the models that use it with nothing but a system text of their own.

"chatml" and "default" have no default system text and no empty system turn: the last resort for any model. Reasoning of
past turns is left out, as the models that reason in ChatML were trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chatlocal.engine.families.native import Chat, NativeFamily
from chatlocal.engine.families.prompt import Part
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.messages import ChatMessage

_CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_ENDS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True)
class ChatML(NativeFamily):
    """Every role has a turn of its own, headed by the role's name; tools and their calls have no place in it.

    `default_system` is the text of the system turn where the conversation does not begin with one, None for no turn. A
    system text of the caller's own takes its place, "" included, unless `skips_empty_system`.
    """

    name: str
    default_system: str | None = None
    skips_empty_system: bool = False
    begin: str = ""
    special: tuple[str, ...] = _CONTROL
    stop_strings: tuple[str, ...] = _ENDS
    roles: frozenset[str] = frozenset({"user", "assistant", "tool"})
    begins: bool = False
    made_for: tuple[MadeFor, ...] = ()

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.parts(self.begin)
        if self.default_system is not None and chat.system is None:
            yield from self.turn("system", self.default_system)
        for turn in chat.turns:
            if turn.role != "system" or turn.text or not self.skips_empty_system:
                yield from self.turn(turn.role, self.text(turn))
        if chat.add_generation_prompt:
            yield from self.parts("<|im_start|>assistant\n")

    def turn(self, role: str, text: str) -> Iterator[Part]:
        """One whole turn."""
        return self.parts(f"<|im_start|>{role}\n{{}}<|im_end|>\n", text)

    def text(self, turn: ChatMessage) -> str:
        """What is written of a turn."""
        return turn.text


_INTERNLM2 = (
    "You are an AI assistant whose name is InternLM (书生·浦语).\n"
    "- InternLM (书生·浦语) is a conversational language model that is developed by Shanghai AI Laboratory"
    " (上海人工智能实验室). It is designed to be helpful, honest, and harmless.\n"
    "- InternLM (书生·浦语) can understand and communicate fluently in the language chosen by the user such as English"
    " and 中文."
)

FAMILIES = (
    ChatML("chatml", skips_empty_system=True, stop_strings=("<|im_end|>",), begins=True),
    ChatML("default", skips_empty_system=True, stop_strings=("<|im_end|>",), begins=True),
    ChatML("yi", made_for=(MadeFor(("llama",), r"\byi-"),)),
    ChatML("qwen2", "You are a helpful assistant.", made_for=(MadeFor(("qwen2", "qwen2_moe")),)),
    ChatML(
        "qwen2.5",
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        made_for=(MadeFor(("qwen2",), r"qwen2\.5"),),
    ),
    ChatML("qwen3-coder", made_for=(MadeFor(("qwen3", "qwen3_moe"), "qwen3-coder"),)),
    ChatML(
        "smollm2",
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
        stop_strings=("<|im_end|>",),
        made_for=(MadeFor(("llama",), "smollm2"),),
    ),
    # The repository's build_inputs: an empty meta instruction writes no turn.
    ChatML(
        "internlm2",
        _INTERNLM2,
        skips_empty_system=True,
        begin="<s>",
        special=("<s>", "</s>", "<|im_start|>", "<|im_end|>"),
        stop_strings=("<|im_end|>", "</s>"),
        made_for=(MadeFor(("internlm2",)),),
    ),
)
