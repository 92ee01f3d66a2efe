"""Vocabulary files in tiktoken's form -> fast tokenizers that give the same ids.

A line of such a file is a token's bytes in base64, a space and its rank. tiktoken merges the adjacent pair whose bytes
together have the lowest rank, until no pair has one; the ids are the ranks. Here every way to cut a token into two
others is a merge, in the order of the ranks, which comes to the same; a word that is a token is one, as there.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from chatlocal.engine.errors import ModelLoadError


def is_tiktoken(path: Path) -> bool:
    """Whether a file begins like a vocabulary in tiktoken's form."""
    with path.open("rb") as file:
        return _read_line(file.readline(4096)) is not None


def read_ranks(path: Path) -> dict[bytes, int]:
    """The tokens with their ranks, which are their ids. ModelLoadError for a file in another form."""
    ranks: dict[bytes, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            read = _read_line(line)
            if read is None:
                raise ModelLoadError(
                    f"Line {number} of {path} is not a token in base64 and its rank: if the file is a Git LFS pointer"
                    " or a broken download, fetch the file itself again."
                )
            ranks[read[0]] = read[1]
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise ModelLoadError(f"The ranks in {path} do not run from 0 without a gap: download the file again.")
    return ranks


def fast_tokenizer(
    ranks: Mapping[bytes, int],
    pattern: str,
    special: Sequence[str],
    *,
    nfc: bool = False,
    prefix: Sequence[str] = (),
    **options: Any,
) -> Any:
    """A tokenizer of transformers over these ranks.

    `pattern` cuts a text into words. `special` are the control tokens, whose ids follow the ranks. With `nfc` texts are
    put into Unicode's form NFC first, by the Unicode tables of the `tokenizers` library: combining marks that are newer
    than those keep their order. `prefix` are the control tokens put before a text with add_special_tokens=True.
    `options` are those of PreTrainedTokenizerFast. Costs seconds for 150,000 tokens.
    """
    from transformers import PreTrainedTokenizerFast

    letters = _letters()
    spelled = {token: token.decode("latin-1").translate(letters) for token in ranks}
    vocabulary = {spelled[token]: rank for token, rank in ranks.items()}
    merges = [(spelled[left], spelled[right]) for left, right in _merges(ranks)]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    bytes_as_letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_as_letters])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    if prefix:
        ids = [(token, tokenizer.token_to_id(token)) for token in prefix]
        tokenizer.post_processor = processors.TemplateProcessing([*prefix, "$A"], [*prefix, "$A", "$B"], ids)
    make: Any = PreTrainedTokenizerFast  # its constructor has no types
    return make(
        tokenizer_object=tokenizer,
        additional_special_tokens=list(special),
        clean_up_tokenization_spaces=False,
        padding_side="left",
        **options,
    )


def _read_line(line: bytes) -> tuple[bytes, int] | None:
    fields = line.split()
    if len(fields) != 2 or not fields[1].isdigit():
        return None
    try:
        return base64.b64decode(fields[0], validate=True), int(fields[1])
    except binascii.Error:
        return None


def _merges(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    found = [
        (rank, ranks[token[:cut]], token[:cut], token[cut:])
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    return [(left, right) for _, _, left, right in sorted(found)]


def _letters() -> dict[int, int]:
    """GPT-2's letter for each byte: printable Latin-1 stands for itself, the other bytes take U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: 0x100 + place for place, byte in enumerate(others)}
