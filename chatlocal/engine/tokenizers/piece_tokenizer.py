"""A sentencepiece model with control tokens beside it, seen as the engine sees a tokenizer of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, overload

from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken

from chatlocal.engine.tokenizers import sentencepiece_model

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


class PieceTokenizer:
    """The base of the ChatGLM tokenizers: control tokens are known by their ids only, text never becomes one.

    `encode_text` and `decode` are the two ways; a subclass says what stands around a text. Never changed after it is
    made, so any number of threads may use one. `begin` are ids that belong before every prompt: none, for the prompt
    formats of these models write all their control tokens.
    """

    begin: tuple[int, ...] = ()
    bos_token: str
    eos_token: str
    pad_token: str
    unk_token: str

    def __init__(
        self,
        vocab_file: Path | str,
        *,
        added: Iterable[str] = (),
        chat_template: Any = None,
        model_max_length: int | None = None,
    ) -> None:
        """`added` are control tokens beyond the model's pieces; their ids follow. ModelLoadError for a broken file."""
        path = Path(vocab_file)
        self.name_or_path = str(path.parent)
        self.chat_template = chat_template
        self.model_max_length = model_max_length
        self.sp_model: SentencePieceProcessor = sentencepiece_model.load(path)
        self._pieces: list[str] = self.sp_model.id_to_piece(list(range(self.sp_model.get_piece_size())))
        ids = list(range(len(self._pieces)))
        marked = zip(ids, self.sp_model.is_control(ids), self.sp_model.is_unknown(ids), strict=True)
        self._control = {id: self._pieces[id] for id, control, unknown in marked if control or unknown}
        self._control.update(enumerate(added, start=len(self._pieces)))
        self._control_ids = {token: id for id, token in self._control.items()}

    def __len__(self) -> int:
        return max(len(self._pieces), *(id + 1 for id in self._control))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name_or_path!r}, {len(self)} tokens)"

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self)

    @property
    def bos_token_id(self) -> int:
        """The id of `bos_token`."""
        return self._control_ids[self.bos_token]

    @property
    def eos_token_id(self) -> int:
        """The id of `eos_token`, which ends an answer."""
        return self._control_ids[self.eos_token]

    @property
    def pad_token_id(self) -> int:
        """The id of `pad_token`."""
        return self._control_ids[self.pad_token]

    @property
    def unk_token_id(self) -> int:
        """The id of `unk_token`."""
        return self._control_ids[self.unk_token]

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The tokens that have a name in transformers."""
        return {name: getattr(self, name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The control tokens by id."""
        return {id: AddedToken(token, normalized=False, special=True) for id, token in self._control.items()}

    @property
    def all_special_tokens(self) -> list[str]:
        """The control tokens."""
        return list(self._control.values())

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of the control tokens."""
        return list(self._control)

    def get_vocab(self) -> dict[str, int]:
        """Every token with its id."""
        return {piece: id for id, piece in enumerate(self._pieces)} | self._control_ids

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int: ...
    @overload
    def convert_tokens_to_ids(self, tokens: list[str] | tuple[str, ...]) -> list[int]: ...
    def convert_tokens_to_ids(self, tokens: str | list[str] | tuple[str, ...]) -> int | list[int]:
        """The id of a token, or the ids of several; the unknown token's for what is none."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        return self._control_ids[tokens] if tokens in self._control_ids else self.sp_model.piece_to_id(tokens)

    @overload
    def convert_ids_to_tokens(self, ids: int) -> str | None: ...
    @overload
    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]: ...
    def convert_ids_to_tokens(self, ids: int | Iterable[int]) -> str | list[str | None] | None:
        """The token of an id, or the tokens of several; None for ids that no token has."""
        if not isinstance(ids, int):
            return [self.convert_ids_to_tokens(id) for id in ids]
        if ids in self._control:
            return self._control[ids]
        return self._pieces[ids] if 0 <= ids < len(self._pieces) else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids that the original tokenizer gives, with the control tokens that it puts around a text or without."""
        ids = self._encode(text)
        return self.build_inputs_with_special_tokens(ids) if add_special_tokens else ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text as such, whatever it spells; what `encode` gives for all ordinary text."""
        return self._encode(text)

    def build_inputs_with_special_tokens(
        self, token_ids_0: Iterable[int], token_ids_1: Iterable[int] | None = None
    ) -> list[int]:
        """The ids of a prompt with its control tokens, and behind them those of a target with its end, if given."""
        raise NotImplementedError

    def decode(
        self,
        token_ids: int | Iterable[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """The text of ids, control tokens spelled out or left out; ids that no token has stand for nothing.

        Spaces are never cleaned up: that argument is there for those who pass it to every tokenizer.
        """
        ids = [token_ids] if isinstance(token_ids, int) else [int(id) for id in token_ids]
        if skip_special_tokens:
            return self._decode([id for id in ids if id not in self._control])
        return "".join(self._spelled_out(ids))

    def token_bytes(self) -> list[bytes]:
        """The bytes of each id within a text, b"" for control tokens."""
        return [
            b"" if id in self._control else self._bytes_of(id, self._pieces[id]) if id < len(self._pieces) else b""
            for id in range(len(self))
        ]

    def _spelled_out(self, ids: list[int]) -> Iterator[str]:
        for is_control, stretch in groupby(ids, self._control.__contains__):
            some = list(stretch)
            yield "".join([self._control[id] for id in some]) if is_control else self._decode(some)

    def _encode(self, text: str) -> list[int]:
        return list(self.sp_model.encode(text, out_type=int))

    def _decode(self, ids: list[int]) -> str:
        return str(self.sp_model.decode([id for id in ids if 0 <= id < len(self._pieces)]))

    def _bytes_of(self, id: int, piece: str) -> bytes:
        byte = _BYTE_PIECE.fullmatch(piece) if self.sp_model.is_byte(id) else None
        return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()
