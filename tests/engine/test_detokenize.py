from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from chatlocal.engine.detokenize import Detokenizer
from tests.tiny import IM_END, tiny_tokenizer

_LETTERS = "abcdefghijklmnopqrstuvwxyz.中é\ufffd"
_MERGES = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "a"), ("▁", "▁")]


def _vocabulary() -> dict[str, int]:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *_LETTERS]
    return {piece: id for id, piece in enumerate([*pieces, *(left + right for left, right in _MERGES)])}


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def llama_like() -> PreTrainedTokenizerFast:
    """Sentencepiece as Llama 2 has it: a space in front, stray bytes as <0xNN>."""
    tokenizer = Tokenizer(models.BPE(_vocabulary(), _MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _fast(tokenizer)


def gemma_like() -> PreTrainedTokenizerFast:
    """The same without a space in front."""
    tokenizer = Tokenizer(models.BPE(_vocabulary(), _MERGES, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _fast(tokenizer)


def metaspace() -> PreTrainedTokenizerFast:
    """Sentencepiece pieces without bytes."""
    vocabulary = [piece for piece in _vocabulary() if not piece.startswith("<0x")]
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(vocabulary)}, _MERGES, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _fast(tokenizer)


def word_pieces() -> PreTrainedTokenizerFast:
    """Words and their continuations, which only decode can put together."""
    pieces = ["<unk>", "<s>", "</s>", "the", "dog", "##s", ".", "中", "\ufffd", "##\ufffd"]
    tokenizer = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.WordPiece()
    return _fast(tokenizer)


def byte_level_with_more() -> PreTrainedTokenizerFast:
    """Bytes behind a decoder of an unknown kind."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("\0", "0")])
    return tokenizer


TOKENIZERS = {
    "byte-level": tiny_tokenizer(),
    "llama": llama_like(),
    "gemma": gemma_like(),
    "metaspace": metaspace(),
    "word pieces": word_pieces(),
    "unknown decoder": byte_level_with_more(),
}
each_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)
each_byte_tokenizer = pytest.mark.parametrize("name", ["byte-level", "llama", "gemma", "unknown decoder"])


def one_by_one(tokenizer: Any, ids: list[int], **options: Any) -> tuple[list[str], str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [detokenizer.feed((id,)) for id in ids], detokenizer.flush()


def decoded(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def encoded(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@each_tokenizer
@given(data=st.data())
def test_the_pieces_of_a_text_are_its_decoding(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    text = data.draw(st.text("the dogs.中é🫠👨‍👩‍👧\ufffd\n", max_size=30))
    ids = encoded(tokenizer, text)
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=5).map(sorted))
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.feed(ids[start:end]) for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    assert "".join(pieces) + detokenizer.flush() == decoded(tokenizer, ids)


@pytest.mark.parametrize("name", ["byte-level", "metaspace"])
@given(data=st.data())
def test_the_pieces_of_any_ids_are_their_decoding(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) + 2), max_size=30))
    pieces, rest = one_by_one(tokenizer, ids)
    assert "".join(pieces) + rest == decoded(tokenizer, ids)


@pytest.mark.parametrize("name", ["llama", "gemma"])
@given(data=st.data())
def test_broken_bytes_in_sentencepiece_spoil_nothing_beside_them(name: str, data: st.DataObject) -> None:
    """Each stray byte is one U+FFFD; every other character stays."""
    tokenizer = TOKENIZERS[name]
    pieces = data.draw(st.lists(st.sampled_from(["the", "a", "🫠", b"\xf0", b"\x9f", b"\xab"]), max_size=8))
    ids: list[int] = []
    expected = ""
    for place, piece in enumerate(pieces):
        data_bytes = piece if isinstance(piece, bytes) else piece.encode()
        if isinstance(piece, str) and piece.isascii():
            ids.append(tokenizer.convert_tokens_to_ids("▁a" if piece == "a" else "the"))
            expected += " a" if piece == "a" else "the"
        else:
            ids += [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in data_bytes]
            broken = isinstance(piece, bytes)
            # A letter between broken bytes keeps them from making a character together.
            ids += [tokenizer.convert_tokens_to_ids("z")]
            expected += ("\ufffd" * len(data_bytes) if broken else str(piece)) + "z"
        if place == 0 and name == "llama":
            expected = expected.removeprefix(" ")
    streamed, rest = one_by_one(tokenizer, ids)
    assert "".join(streamed) + rest == expected


@each_byte_tokenizer
@pytest.mark.parametrize("text", ["🫠", "🦥", "龘", "👨‍👩‍👧", "a 🍕🦥 b"])
def test_no_piece_shows_half_a_character(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = encoded(tokenizer, text)
    assert len(ids) > len(text.split())  # or nothing here is cut
    pieces, rest = one_by_one(tokenizer, ids)
    assert not any("\ufffd" in piece for piece in pieces)
    assert (("".join(pieces)).strip(), rest) == (text, "")


@each_byte_tokenizer
def test_a_literal_replacement_character_does_not_hold_the_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    pieces, rest = one_by_one(tokenizer, encoded(tokenizer, "a \ufffd bcd"))
    assert ("".join(pieces), rest) == ("a \ufffd bcd", "")
    assert pieces[-1] == "d"


def test_a_window_of_literal_replacement_characters_comes_out() -> None:
    tokenizer = TOKENIZERS["word pieces"]
    pieces, rest = one_by_one(tokenizer, [8, *[9] * 40])
    assert len("".join(pieces)) >= 16
    assert "".join(pieces) + rest == "\ufffd" * 41


@pytest.mark.parametrize(("name", "shown"), [("byte-level", 1), ("llama", 2), ("gemma", 2), ("unknown decoder", 1)])
def test_an_incomplete_character_is_flushed_as_decode_shows_it(name: str, shown: int) -> None:
    tokenizer = TOKENIZERS[name]
    ids = encoded(tokenizer, "a🫠")[:-2]
    pieces, rest = one_by_one(tokenizer, ids)
    assert ("".join(pieces), rest) == ("a", "\ufffd" * shown)
    assert decoded(tokenizer, ids) == "a" + "\ufffd" * shown


@each_tokenizer
def test_special_ids_are_skipped(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    ids = [start, *encoded(tokenizer, "the dogs"), end]
    pieces, rest = one_by_one(tokenizer, ids)
    assert "".join(pieces) + rest == decoded(tokenizer, ids)
    assert tokenizer.eos_token not in decoded(tokenizer, ids)


@pytest.mark.parametrize("name", ["byte-level", "unknown decoder"])
def test_kept_special_ids_come_out_by_name(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = [0, *encoded(tokenizer, "a"), 2, *encoded(tokenizer, "b")]
    pieces, rest = one_by_one(tokenizer, ids, keep=frozenset({2}))
    assert "".join(pieces) + rest == f"a{IM_END}b"


def test_ids_that_no_token_has_are_nothing() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    pieces, rest = one_by_one(tokenizer, [100_000, *encoded(tokenizer, "a")])
    assert "".join(pieces) + rest == "a"


def test_a_known_decoder_costs_nothing_but_the_new_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    ids = encoded(tokenizer, "the dogs 🫠" * 50)
    expected = decoded(tokenizer, ids)

    def never(*args: object, **kwargs: object) -> str:
        raise AssertionError("decode was called")

    monkeypatch.setattr(type(tokenizer), "decode", never)
    pieces, rest = one_by_one(tokenizer, ids)
    assert "".join(pieces) + rest == expected


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(embedded_folder)


@given(ids=st.lists(st.integers(0, 49_151), max_size=30))
def test_the_embedded_models_tokenizer(embedded_tokenizer: Any, ids: list[int]) -> None:
    pieces, rest = one_by_one(embedded_tokenizer, ids)
    assert "".join(pieces) + rest == decoded(embedded_tokenizer, ids)
