"""ChatGLM-6B's tokenizer: the published ids, and text that spells its white-space tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.tokenizers import ChatGLMTokenizer
from tests.engine.tokenizers.vocabularies import (
    AS_IS,
    GOLDEN,
    LOWER,
    WHITESPACE,
    published_chatglm,
    real_file,
    trained_chatglm,
    trained_chatglm2,
)

FACTS = GOLDEN["chatglm_6b"]
SETTINGS = {AS_IS: False, LOWER: True}

Make = Callable[..., ChatGLMTokenizer]


@pytest.fixture(scope="module", params=["published tokens", "real vocabulary"])
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes tokenizers with the published ids, each once."""
    if request.param == "real vocabulary":
        file = real_file("ice_text.model")
    else:
        file = tmp_path_factory.mktemp("chatglm") / "ice_text.model"
        file.write_bytes(published_chatglm())
    return cache(lambda **options: ChatGLMTokenizer(file, **options))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ChatGLMTokenizer:
    file = tmp_path_factory.mktemp("trained") / "ice_text.model"
    file.write_bytes(trained_chatglm())
    return ChatGLMTokenizer(file)


@pytest.mark.parametrize("vector", FACTS["recomputed_vectors"], ids=lambda vector: repr(vector["text"])[:40])
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_ids_of_the_released_tokenizer(make: Make, settings: str, vector: dict[str, Any]) -> None:
    tokenizer = make(do_lower_case=SETTINGS[settings])
    expected = vector["results"][settings]
    ids = tokenizer.encode(vector["text"], add_special_tokens=False)
    assert ids == expected["ids_no_special"]
    assert tokenizer.convert_ids_to_tokens(ids) == expected["pieces"]
    assert tokenizer.encode(vector["text"]) == expected["ids_with_special"]
    assert tokenizer.decode(ids) == expected["decode_no_special"]


@pytest.mark.parametrize("vector", FACTS["published"]["vectors"], ids=lambda vector: repr(vector["text"]))
def test_the_ids_of_the_article(make: Make, vector: dict[str, Any]) -> None:
    tokenizer = make(do_lower_case=True)
    assert tokenizer.encode(vector["text"], add_special_tokens=vector["with_special"]) == vector["ids"]


@pytest.mark.parametrize("pair", FACTS["published"]["training_pairs"], ids=lambda pair: pair["context"])
def test_a_prompt_with_its_target(make: Make, pair: dict[str, Any]) -> None:
    tokenizer = make(do_lower_case=True)
    context, target = (tokenizer.encode(pair[name], add_special_tokens=False) for name in ("context", "target"))
    assert tokenizer.build_inputs_with_special_tokens(context, target) == pair["input_ids"]
    assert len(tokenizer.encode(pair["context"])) == pair["seq_len"]


def test_decoding_drops_the_mark_at_the_start(make: Make) -> None:
    published = FACTS["published"]["decode"]
    assert make().decode(published["ids"]) == published["text"]


def test_special_tokens_have_the_published_ids(make: Make) -> None:
    tokenizer = make()
    expected = FACTS["special_ids"]["special"]
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in expected} == expected
    assert len(tokenizer) == FACTS["special_ids"]["vocab_size"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (130004, 130005, 3)


def test_a_text_may_begin_without_the_mark(make: Make) -> None:
    tokenizer = make()
    plain = {prefix: tokenizer.encode("b", False, add_dummy_prefix=prefix) for prefix in (True, False)}
    assert plain == {True: [463], False: [178]}  # "▁b" and "b" of the published vectors
    assert tokenizer.encode("b", add_dummy_prefix=False) == [178, 130001, 130004]


@pytest.mark.parametrize("text", ["  x\n", "\tx", "x", " x "])
def test_remove_space_leaves_single_spaces_between_words(make: Make, text: str) -> None:
    tokenizer = make(remove_space=True)
    assert tokenizer.encode(text, add_special_tokens=False) == [399]  # "▁x" of the published vectors
    assert tokenizer.encode(f"{text} {text}", add_special_tokens=False) == [399, 399]


@pytest.mark.parametrize("text", ["<n>", "<|tab|>", "<|blank_2|>", "a<|blank_80|>b", "＜n＞"])
def test_typed_tokens_stay_what_was_typed(trained: ChatGLMTokenizer, text: str) -> None:
    spaces = set(trained.convert_tokens_to_ids(WHITESPACE))
    assert spaces & set(trained.encode(text))  # the original takes them for white space
    ids = trained.encode_text(text)
    assert not spaces & set(ids)
    assert trained.decode(ids) == text.replace("＜", "<").replace("＞", ">")


typed = st.lists(
    st.sampled_from(["a", "dog", "你好", "\n", "\t", "  ", "   ", " ", *WHITESPACE[:4], "<", ">"]), max_size=9
)


@given(text=typed.map("".join))
def test_prompts_read_back_as_they_were_typed(trained: ChatGLMTokenizer, text: str) -> None:
    single = re.compile(r"\A (?! )|(?<! ) \Z")  # a single space at an end goes, with the original too
    assert trained.decode(trained.encode_text(text)) == single.sub("", text)


@given(text=st.text("ab dogB你好\n\t.1２é<>|", max_size=20))
def test_ordinary_text_has_the_ids_of_the_original(trained: ChatGLMTokenizer, text: str) -> None:
    if "<n>" not in text:
        assert trained.encode_text(text) == trained.encode(text, add_special_tokens=False)


def test_control_tokens_are_shown_or_left_out(trained: ChatGLMTokenizer) -> None:
    ids = [*trained.encode("the\ndog"), trained.eos_token_id]
    assert trained.decode(ids) == "the\ndog[gMASK]<sop><eop>"
    assert trained.decode(ids, skip_special_tokens=True) == "the\ndog"
    assert trained.decode(trained.eos_token_id) == "<eop>"
    assert trained.decode([len(trained) + 5]) == ""


def test_typed_control_tokens_are_text(trained: ChatGLMTokenizer) -> None:
    text = "[gMASK]<sop><eop></s><pad>"
    assert not set(trained.encode(text, add_special_tokens=False)) & set(trained.all_special_ids)
    assert trained.decode(trained.encode_text(text)) == text


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ice_text.model"
    file.write_bytes(trained_chatglm2())
    with pytest.raises(ModelLoadError, match=r"lacks \[MASK\] and \d+ other tokens of ChatGLM-6B"):
        ChatGLMTokenizer(file)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ice_text.model"
    file.write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ModelLoadError, match=r"ice_text\.model is not a sentencepiece model.*Git LFS"):
        ChatGLMTokenizer(file)
