"""Ids of a prompt from tokenizers that are not fast ones of transformers: stretch by stretch.

Control markup becomes its id; every stretch of text between is encoded on its own by the library's call that knows no
control tokens, so sentencepiece begins each with its "▁" as the references do. The kinds are chatlocal's own
tokenizers, SentencePieceProcessor, tiktoken's Encoding, mistral-common's tokenizers and the slow ones of transformers;
they are told by their methods, so the libraries need not be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families.control import control_tokens
from chatlocal.engine.tokenizers import sentencepiece_model


@dataclass(frozen=True, slots=True)
class _Read:
    """What is used of a tokenizer. `encode` gives the ids of a text without control tokens."""

    control_ids: dict[str, int]
    encode: Callable[[str], list[int]]
    begin: tuple[int, ...] = ()
    unknown: int | None = None


class PiecewiseEncoder:
    """The Encoder (see encoding.py) for a tokenizer that is not a fast one of transformers."""

    def __init__(self, read: _Read) -> None:
        self.control_ids = read.control_ids
        self.begin = read.begin
        self._encode_text = read.encode
        # Unknown characters are the unknown token's business, in text too.
        self._forbidden = frozenset(read.control_ids.values()) - {read.unknown}
        longest_first = sorted(read.control_ids, key=len, reverse=True)
        self._look_alike = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @classmethod
    def of(cls, tokenizer: Any, control: frozenset[str]) -> PiecewiseEncoder:
        """The encoder for a tokenizer and a family's control tokens. UnsupportedInput for an unknown kind."""
        for kind in (_own, _mistral, _sentencepiece, _tiktoken, _slow):
            read = kind(tokenizer, control)
            if read is not None:
                return cls(read)
        raise UnsupportedInput(
            f"A {type(tokenizer).__name__} cannot keep control tokens and text apart: load the tokenizer in its fast"
            " form (AutoTokenizer does when the folder has a tokenizer.json), or pass one of sentencepiece, tiktoken,"
            " tokenizers or mistral-common."
        )

    def encode(self, runs: Iterable[list[tuple[bool, str]]]) -> tuple[int, ...]:
        """See Encoder."""
        return tuple(id for run in runs for id in self._encode_run(run))

    def _encode_run(self, pieces: list[tuple[bool, str]]) -> Iterator[int]:
        stretch: list[str] = []
        for marked, text in pieces:
            check_text(text)
            if marked and text in self.control_ids:
                yield from self._text("".join(stretch))
                yield self.control_ids[text]
                stretch = []
            else:
                stretch.append(text)
        yield from self._text("".join(stretch))

    def _text(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._encode_text(text)
        if self._forbidden.isdisjoint(ids):
            return ids
        # Some tokenizers find control tokens in plain text by themselves: cut the look-alikes in two.
        cuts = [found.start() + 1 for found in self._look_alike.finditer(text)]
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        ids = [id for part in parts for id in self._encode_text(part)]
        if not self._forbidden.isdisjoint(ids):
            raise UnsupportedInput(
                "The tokenizer makes control tokens of what stands in the text, and has no other way to write it: load"
                " the tokenizer in its fast form."
            )
        return ids


def check_text(text: str) -> None:
    """UnsupportedInput for half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedInput(
            f"The prompt holds {text[error.start]!r}, half of a surrogate pair, which no text can hold: read the text"
            " with the right encoding, or replace it with text.encode(errors='replace').decode()."
        ) from error


def is_markup(token: str) -> bool:
    """Whether a piece of a vocabulary may be meant as a control token: "sop" is a part of words in most of them."""
    return token.startswith(("<", "["))


def before(whole: list[int], plain: list[int]) -> tuple[int, ...]:
    """What stands in `whole` before the ids of `plain`."""
    starts = range(len(whole) - len(plain) + 1)
    return next((tuple(whole[:start]) for start in starts if whole[start : start + len(plain)] == plain), ())


def _own(tokenizer: Any, control: frozenset[str]) -> _Read | None:
    """chatlocal's own: text never becomes a control id in `encode_text`."""
    if not hasattr(tokenizer, "encode_text"):
        return None
    ids = control_tokens(tokenizer, control)
    return _Read(ids, _twin(tokenizer).encode_text, tokenizer.begin, tokenizer.unk_token_id)


def _mistral(tokenizer: Any, control: frozenset[str]) -> _Read | None:
    """mistral-common's SentencePieceTokenizer and Tekkenizer, also in a MistralTokenizer or transformers' backend."""
    outer: Any = tokenizer if hasattr(tokenizer, "instruct_tokenizer") else getattr(tokenizer, "tokenizer", None)
    inner = outer.instruct_tokenizer.tokenizer if hasattr(outer, "instruct_tokenizer") else tokenizer
    if not all(hasattr(inner, name) for name in ("special_ids", "id_to_piece", "bos_id")):
        return None
    twin = _twin(inner)
    ids = {inner.id_to_piece(id): id for id in inner.special_ids}
    return _Read(ids, lambda text: list(twin.encode(text, bos=False, eos=False)), (inner.bos_id,))


def _sentencepiece(tokenizer: Any, control: frozenset[str]) -> _Read | None:
    """SentencePieceProcessor: no text becomes a control piece, and the family's other control tokens are renamed."""
    if not hasattr(tokenizer, "serialized_model_proto"):
        return None
    pieces = range(tokenizer.get_piece_size())
    ids = {tokenizer.id_to_piece(id): id for id in pieces if tokenizer.is_control(id)}
    marked = _marked(tokenizer, control)
    copy, _ = sentencepiece_model.renamed(tokenizer, marked)
    begin = (copy.bos_id(),) if copy.bos_id() >= 0 else ()
    return _Read(ids | marked, lambda text: list(copy.encode(text, out_type=int)), begin)


def _marked(processor: Any, control: Iterable[str]) -> dict[str, int]:
    """The control tokens that are ordinary or user-defined pieces: a text may spell them."""
    ids = {token: processor.piece_to_id(token) for token in sorted(control) if is_markup(token)}
    unknown = processor.unk_id()
    return {token: id for token, id in ids.items() if id != unknown and not processor.is_control(id)}


def _tiktoken(tokenizer: Any, control: frozenset[str]) -> _Read | None:
    """tiktoken's Encoding."""
    if not hasattr(tokenizer, "encode_ordinary"):
        return None
    ids = {token: tokenizer.encode_single_token(token) for token in sorted(tokenizer.special_tokens_set)}
    return _Read(ids, _twin(tokenizer).encode_ordinary)


def _slow(tokenizer: Any, control: frozenset[str]) -> _Read | None:
    """A slow tokenizer of transformers."""
    if not all(hasattr(tokenizer, name) for name in ("tokenize", "convert_tokens_to_ids", "added_tokens_decoder")):
        return None
    twin = _twin(tokenizer)
    ids = control_tokens(tokenizer, control)
    if hasattr(tokenizer, "sp_model"):
        marked = _marked(tokenizer.sp_model, control | ids.keys())
        twin.sp_model, _ = sentencepiece_model.renamed(tokenizer.sp_model, marked)
        ids |= {token: tokenizer.convert_tokens_to_ids(token) for token in marked}

    def encode(text: str) -> list[int]:
        return list(twin.convert_tokens_to_ids(twin.tokenize(text, split_special_tokens=True)))

    unknown = getattr(tokenizer, "unk_token_id", None)
    return _Read(ids, encode, before(tokenizer.encode("a"), encode("a")), unknown)


def _twin(tokenizer: Any) -> Any:
    """The same tokenizer as another object, for encoders must not keep alive what they are kept for."""
    twin = object.__new__(type(tokenizer))
    twin.__dict__.update(tokenizer.__dict__)
    return twin
