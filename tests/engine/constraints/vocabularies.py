"""Tokenizers that tests/tiny.py does not have: sentencepiece's kind, and byte-level ones with gaps or additions."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_tokenizer

_CHARS = '▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789{}[]":,.-\\你好世界'
_MERGES = [("▁", "i"), ("▁i", "s"), ("a", "m"), ("▁", "▁"), ('"', ":"), ("{", '"'), ("1", "3"), ('":', "▁")]


def with_added(*contents: str) -> PreTrainedTokenizerFast:
    """The tiny tokenizer with further added tokens that are not marked special."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(content, special=False, normalized=False) for content in contents])
    return tokenizer


def lacking(characters: str) -> PreTrainedTokenizerFast:
    """The tiny tokenizer without any token in which one of these ASCII characters stands; ids keep their places."""
    tokenizer = tiny_tokenizer()
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    model = settings["model"]
    model["vocab"] = {token: id for token, id in model["vocab"].items() if not set(token) & set(characters)}
    model["merges"] = [pair for pair in model["merges"] if not set("".join(pair)) & set(characters)]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(settings)), eos_token=tokenizer.eos_token
    )


def sentencepiece() -> PreTrainedTokenizerFast:
    """Llama 2's kind: "▁" for a space, <0xNN> for what has no token, a space put before the text."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for token in [*_CHARS, *(left + right for left, right in _MERGES)]:
        vocab[token] = len(vocab)
    core = Tokenizer(models.BPE(vocab=vocab, merges=_MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", bos_token="<s>", unk_token="<unk>")
