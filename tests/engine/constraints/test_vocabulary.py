from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from chatlocal.engine.constraints.vocabulary import read_vocabulary, special_ids, token_bytes
from chatlocal.engine.errors import UnsupportedInput
from tests.engine.constraints.vocabularies import sentencepiece, with_added
from tests.tiny import tiny_tokenizer

BYTE_LEVEL = tiny_tokenizer()
SENTENCEPIECE = sentencepiece()


def spell(tokenizer, text):
    tokens = token_bytes(tokenizer)
    return b"".join(tokens[id] for id in tokenizer.encode(text, add_special_tokens=False))


texts = st.one_of(
    st.text(),
    st.lists(st.sampled_from(["你好", "🦥", "\ufffd", "é", "\x00", " ", "\n", '{"a": 1}', "龘"])).map("".join),
)


@given(texts)
@settings(deadline=None)
def test_byte_level_tokens_spell_the_text(text):
    assert spell(BYTE_LEVEL, text) == text.encode()


@given(texts.filter(lambda text: "▁" not in text and "<" not in text))
@settings(deadline=None)
def test_sentencepiece_tokens_spell_the_text_after_the_space_put_before_it(text):
    assert spell(SENTENCEPIECE, text) == (" " + text if text else text).encode()


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Cc"])))
@settings(deadline=None)
def test_the_embedded_model(embedded_tokenizer, text):
    assert spell(embedded_tokenizer, text) == text.encode()


def test_the_embedded_model_lacks_single_bytes(embedded_tokenizer):
    tokens = set(token_bytes(embedded_tokenizer))
    assert sum(bytes([byte]) not in tokens for byte in range(256)) == 21


def test_special_ids_have_no_bytes():
    assert special_ids(BYTE_LEVEL) == {0, 1, 2}
    assert token_bytes(BYTE_LEVEL)[:3] == (b"", b"", b"")


def test_added_tokens_keep_their_literal_text():
    tokenizer = with_added("<think>", "café", "Ġx", "a b")
    for text in ("<think>", "café", "Ġx", "a b"):
        (id,) = tokenizer.encode(text, add_special_tokens=False)
        assert token_bytes(tokenizer)[id] == text.encode()


def test_markup_is_control_and_words_are_not():
    tokenizer = with_added("<think>", "[INST]", "café", "    ")
    ids = {text: tokenizer.convert_tokens_to_ids(text) for text in ("<think>", "[INST]", "café", "    ")}
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.control - vocabulary.special == {ids["<think>"], ids["[INST]"]}


def test_a_bare_tokenizer_reads_the_same():
    assert token_bytes(BYTE_LEVEL.backend_tokenizer) == token_bytes(BYTE_LEVEL)


def test_read_once_until_tokens_are_added():
    tokenizer = tiny_tokenizer()
    first = token_bytes(tokenizer)
    assert token_bytes(tokenizer) is first
    tokenizer.add_tokens([AddedToken("zebra", special=False)])
    assert token_bytes(tokenizer)[-1] == b"zebra"


def test_the_cache_lets_go_of_the_tokenizer():
    tokenizer = tiny_tokenizer()
    token_bytes(tokenizer)
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None


def test_wordpiece_is_refused():
    core = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    core.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedInput, match="WordPiece"):
        token_bytes(core)


def test_an_unknown_object_is_refused():
    class Odd:
        def __len__(self):
            return 1

    with pytest.raises(UnsupportedInput, match="Odd"):
        token_bytes(Odd())
