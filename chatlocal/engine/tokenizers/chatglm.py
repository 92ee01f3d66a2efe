"""The tokenizer of ChatGLM-6B, from its `ice_text.model`.

Newlines, tabs and runs of spaces are pieces of their own (`<n>`, `<|tab|>`, `<|blank_2|>` to `<|blank_80|>`), written
into the text before sentencepiece sees it; `[gMASK] <sop>` stand behind a prompt and `<eop>` behind what was to be
said. The format is that of tokenization_chatglm.py in THUDM/chatglm-6b (ids of its vocabulary of 130344 tokens:
[gMASK] 130001, <sop> 130004, <eop> 130005).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.tokenizers import sentencepiece_model
from chatlocal.engine.tokenizers.piece_tokenizer import PieceTokenizer

_LONGEST_BLANK = 80
_WHITESPACE = re.compile(f"\n|\t| {{2,{_LONGEST_BLANK}}}")
# Each piece with the white space that it stands for.
_PIECES = {"<n>": "\n", "<|tab|>": "\t"} | {f"<|blank_{size}|>": " " * size for size in range(2, _LONGEST_BLANK + 1)}
_LITERAL = {space: piece for piece, space in _PIECES.items()}
_CONTROL = ("[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<pad>")


class ChatGLMTokenizer(PieceTokenizer):
    """ChatGLM-6B's tokenizer.

    `encode` follows the original to the letter, which takes a typed "<n>" or "<|tab|>" for a newline or a tab. Prompts
    go through `encode_text`: it gives the same ids for text that spells none of these pieces, and for text that does
    the ids of its characters, so `decode` returns what was typed.

    `do_lower_case`: texts are put into lower case; False in the released tokenizer_config.json. `remove_space`: white
    space at the ends goes, and every other run of it becomes one space. ModelLoadError for another vocabulary.
    """

    bos_token = "<sop>"
    eos_token = "<eop>"
    pad_token = "<pad>"
    unk_token = "<unk>"

    def __init__(
        self,
        vocab_file: Path | str,
        *,
        do_lower_case: bool = False,
        remove_space: bool = False,
        chat_template: Any = None,
        model_max_length: int | None = None,
    ) -> None:
        super().__init__(vocab_file, chat_template=chat_template, model_max_length=model_max_length)
        self.do_lower_case = do_lower_case
        self.remove_space = remove_space
        known = self.get_vocab()
        if missing := [token for token in (*_CONTROL, *_PIECES) if token not in known]:
            raise ModelLoadError(
                f"{vocab_file} lacks {missing[0]} and {len(missing) - 1} other tokens of ChatGLM-6B: it is another"
                " model's, or of the first release, which adds them by code. Download ice_text.model of the newest"
                " release of THUDM/chatglm-6b."
            )
        self._spaces = {known[piece]: space for piece, space in _PIECES.items()}
        self._unseen, names = sentencepiece_model.renamed(self.sp_model, _PIECES)
        self._names = {space: names[piece] for piece, space in _PIECES.items()}

    def encode(self, text: str, add_special_tokens: bool = True, *, add_dummy_prefix: bool = True) -> list[int]:
        """The ids that the original gives: with `[gMASK] <sop>` behind them, as for a prompt, or without.

        Without `add_dummy_prefix` the text does not begin with sentencepiece's "▁".
        """
        if add_dummy_prefix:
            return super().encode(text, add_special_tokens)
        ids = super()._encode("<n>" + self._written(text, _LITERAL))[2:]
        return self.build_inputs_with_special_tokens(ids) if add_special_tokens else ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text as such: "<n>" is three characters and no newline."""
        return list(self._unseen.encode(self._written(text, self._names), out_type=int))

    def build_inputs_with_special_tokens(
        self, token_ids_0: Iterable[int], token_ids_1: Iterable[int] | None = None
    ) -> list[int]:
        """A prompt with `[gMASK] <sop>` behind it, and behind them, if given, a target with `<eop>`."""
        prompt = [*token_ids_0, self._control_ids["[gMASK]"], self.bos_token_id]
        return prompt if token_ids_1 is None else [*prompt, *token_ids_1, self.eos_token_id]

    def _encode(self, text: str) -> list[int]:
        return super()._encode(self._written(text, _LITERAL))

    def _written(self, text: str, pieces: Mapping[str, str]) -> str:
        """The text with these pieces for its white space."""
        if self.remove_space:
            text = " ".join(text.split())
        if self.do_lower_case:
            text = text.lower()
        return _WHITESPACE.sub(lambda found: pieces[found[0]], text)

    def _decode(self, ids: list[int]) -> str:
        text = str(self._unseen.decode([id for id in ids if 0 <= id < len(self._pieces)]))
        return sentencepiece_model.NAME.sub(lambda found: self._spaces[int(found[1])], text)

    def _bytes_of(self, id: int, piece: str) -> bytes:
        return self._spaces[id].encode() if id in self._spaces else super()._bytes_of(id, piece)
