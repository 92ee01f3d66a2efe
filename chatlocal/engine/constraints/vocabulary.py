"""The bytes that each token id stands for.

Knows the two ways in which tokenizers write bytes as text: the byte-level alphabet (GPT-2, Qwen, Llama 3, SmolLM2)
and sentencepiece's "▁" for a space with <0xNN> for single bytes (Llama 2, Gemma, Mistral). A tokenizer with a method
`token_bytes` (ChatGLM's) is asked. What a tokenizer does to the text before it looks tokens up (a space put in front,
Unicode normal forms) is not seen here.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from chatlocal.engine.errors import UnsupportedInput


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`tokens[id]` is the bytes of an id, b"" for special ids and for ids that no token has.

    `special` are the ids marked special. `control` are those and the added tokens that are written like markup
    (`<think>`, `[INST]`): a constrained text never uses them, it spells the same characters with ordinary tokens, but
    where a grammar asks for one by its name, which is in `names`.
    """

    tokens: tuple[bytes, ...]
    special: frozenset[int]
    control: frozenset[int]
    names: Mapping[str, int]


def token_bytes(tokenizer: Any) -> tuple[bytes, ...]:
    """The bytes of each id, b"" for special ids. Costs up to a second once for each tokenizer. UnsupportedInput."""
    return read_vocabulary(tokenizer).tokens


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of added tokens marked special and of the tokenizer's own special tokens."""
    return read_vocabulary(tokenizer).special


def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """The vocabulary of a tokenizer of transformers, `tokenizers` or chatlocal, kept for as long as that lives.

    It is read again when tokens were added since. UnsupportedInput for a tokenizer of another kind.
    """
    size = _size(tokenizer)
    with _lock:
        known = _cache.get(tokenizer)
        if known is not None and known[0] == size:
            return known[1]
    vocabulary = _read(tokenizer)
    with _lock:
        _cache[tokenizer] = (size, vocabulary)
    return vocabulary


_cache: weakref.WeakKeyDictionary[Any, tuple[int, Vocabulary]] = weakref.WeakKeyDictionary()
_lock = Lock()

_MARKUP = re.compile(r"<.+>|\[.+\]|<\|.*|.*\|>", re.DOTALL)
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _size(tokenizer: Any) -> int:
    if hasattr(tokenizer, "get_vocab_size"):
        return int(tokenizer.get_vocab_size(True))
    return len(tokenizer)


def _read(tokenizer: Any) -> Vocabulary:
    if hasattr(tokenizer, "token_bytes"):
        marked = frozenset(tokenizer.all_special_ids)
        names = {str(tokenizer.convert_ids_to_tokens(id)): id for id in marked}
        return Vocabulary(tuple(tokenizer.token_bytes()), special=marked, control=marked, names=names)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "get_added_tokens_decoder"):
        added = backend.get_added_tokens_decoder()
        entries = backend.get_vocab(True)
        steps = {*_steps(backend.decoder or backend.pre_tokenizer)}
        if steps & {"WordPiece", "BPEDecoder", "CTC"}:
            raise UnsupportedInput("WordPiece and CTC tokenizers lose the spaces of a text: choose a chat model.")
        byte_level = "ByteLevel" in steps
    elif hasattr(tokenizer, "sp_model"):
        added = tokenizer.added_tokens_decoder
        entries = tokenizer.get_vocab()
        byte_level = False
    else:
        raise UnsupportedInput(
            f"The tokens of a {type(tokenizer).__name__} cannot be read as bytes: load the tokenizer in its fast form"
            " (AutoTokenizer does when the folder has a tokenizer.json) or build it with the tokenizers library."
        )
    special = {id for id, token in added.items() if token.special}
    special.update(getattr(tokenizer, "all_special_ids", ()))
    control = special | {id for id, token in added.items() if _MARKUP.fullmatch(token.content)}
    tokens = [b""] * (1 + max(entries.values(), default=-1))
    for text, id in entries.items():
        if id in special:
            continue
        if not byte_level:
            tokens[id] = _sentencepiece(text)
        elif id in added:
            tokens[id] = text.encode()
        else:
            tokens[id] = _from_alphabet(text)
    names = {token.content: id for id, token in added.items() if id in control}
    return Vocabulary(tuple(tokens), frozenset(special), frozenset(control), names)


def _steps(component: Any) -> Iterator[str]:
    """The types named in a decoder or pre-tokenizer, nested ones included."""
    return _types(json.loads(component.__getstate__())) if component is not None else iter(())


def _types(settings: dict[str, Any]) -> Iterator[str]:
    yield settings.get("type", "")
    for child in (*settings.get("decoders", ()), *settings.get("pretokenizers", ())):
        yield from _types(child)


def _alphabet() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the other bytes take U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return table


_ALPHABET = _alphabet()


def _from_alphabet(text: str) -> bytes:
    if all(char in _ALPHABET for char in text):
        return bytes(_ALPHABET[char] for char in text)
    return text.encode()


def _sentencepiece(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()
