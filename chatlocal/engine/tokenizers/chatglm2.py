"""The tokenizers of ChatGLM2 (CodeGeeX2 too) and ChatGLM3, from their `tokenizer.model`.

Control tokens are no pieces of the model: their ids follow its own, and only code puts them in. The formats are those
of tokenization_chatglm.py in THUDM/chatglm2-6b and THUDM/chatglm3-6b (ids of their vocabulary of 64789 pieces:
[gMASK] 64790, sop 64792, <|user|> 64795).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from chatlocal.engine.errors import UnsupportedInput, UnsupportedRole
from chatlocal.engine.tokenizers.piece_tokenizer import PieceTokenizer


class ChatGLM2Tokenizer(PieceTokenizer):
    """ChatGLM2's tokenizer: `[gMASK] sop` in front of a text. ModelLoadError for a file that is no vocabulary."""

    bos_token = "<s>"
    eos_token = "</s>"
    pad_token = "<unk>"
    unk_token = "<unk>"
    control_tokens: ClassVar[tuple[str, ...]] = ("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop")

    def __init__(
        self, vocab_file: Path | str, *, chat_template: Any = None, model_max_length: int | None = None
    ) -> None:
        super().__init__(
            vocab_file, added=self.control_tokens, chat_template=chat_template, model_max_length=model_max_length
        )

    def get_command(self, token: str) -> int:
        """The id of a control token; `<bos>`, `<eos>` and `<pad>` are names of the model's own. UnsupportedInput."""
        own = {"<bos>": self.bos_token_id, "<eos>": self.eos_token_id, "<pad>": self.pad_token_id}
        known = own | {name: self._control_ids[name] for name in self.control_tokens}
        if token not in known:
            raise UnsupportedInput(f"{token!r} is no control token here; there are {', '.join(known)}.")
        return known[token]

    def get_prefix_tokens(self) -> list[int]:
        """`[gMASK] sop`, which every prompt begins with."""
        return [self.get_command("[gMASK]"), self.get_command("sop")]

    def build_inputs_with_special_tokens(
        self, token_ids_0: Iterable[int], token_ids_1: Iterable[int] | None = None
    ) -> list[int]:
        """A prompt with `[gMASK] sop` before it, and behind it, if given, a target with `</s>`."""
        prompt = [*self.get_prefix_tokens(), *token_ids_0]
        return prompt if token_ids_1 is None else [*prompt, *token_ids_1, self.eos_token_id]


class ChatGLM3Tokenizer(ChatGLM2Tokenizer):
    """ChatGLM3's tokenizer: ChatGLM2's with a control token for each role."""

    roles: ClassVar[tuple[str, ...]] = ("system", "user", "assistant", "observation")
    control_tokens: ClassVar[tuple[str, ...]] = (
        *ChatGLM2Tokenizer.control_tokens,
        *(f"<|{role}|>" for role in roles),
    )

    def build_single_message(self, role: str, metadata: str, message: str) -> list[int]:
        """The ids of one turn: the role token, then what stands on its line and the text, each tokenized on its own.

        `metadata` is the name of the tool that an assistant calls, else "". UnsupportedRole for other roles.
        """
        if role not in self.roles:
            raise UnsupportedRole(f"ChatGLM3 has no role {role!r}; its roles are {', '.join(self.roles)}.")
        return [self.get_command(f"<|{role}|>"), *self.encode_text(f"{metadata}\n"), *self.encode_text(message)]

    def build_chat_input(self, query: str, history: Iterable[Mapping[str, Any]] = (), role: str = "user") -> list[int]:
        """The ids of a whole prompt, up to the token that asks for the assistant's answer.

        `history` are the turns before: `role`, `content`, and where there is one `metadata`, or the `tools` of a
        system turn. `role` is whose turn `query` is: "observation" for a tool's result.
        """
        ids = self.get_prefix_tokens()
        for turn in history:
            content = turn["content"]
            if turn["role"] == "system" and "tools" in turn:
                content += "\n" + json.dumps(turn["tools"], indent=4, ensure_ascii=False)
            ids += self.build_single_message(turn["role"], turn.get("metadata", ""), content)
        return [*ids, *self.build_single_message(role, "", query), self.get_command("<|assistant|>")]
