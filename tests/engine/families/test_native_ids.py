"""Ids of the families written here are those of the references, with the models' own vocabularies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from chatlocal.engine import families
from chatlocal.engine.tokenizers import ChatGLM2Tokenizer, ChatGLM3Tokenizer, ChatGLMTokenizer
from tests.engine.families.published import NAMES, published_tokenizer
from tests.engine.tokenizers.vocabularies import published_chatglm2, real_file

_GOLDEN = Path(__file__).parents[2] / "golden" / "prompts.json"
CASES = [case for case in json.loads(_GOLDEN.read_text("utf-8")) if "expected_token_ids" in case]
# Llama 3 has the vocabulary of Llama 3.1, and Llama's first that of the models trained from it.
_PUBLISHED = [case | {"tokenizer": "llama3_1"} if case["family"] == "llama3" else case for case in CASES]
_PUBLISHED = [case for case in _PUBLISHED if case.get("tokenizer") in NAMES]
_LLAMA = [case for case in CASES if case["family"] in ("llama2", "vicuna", "belle")]
_VARIABLE = "CHATLOCAL_LLAMA_VOCAB"
# The family's tokenizer and the file that it is made of.
_CHATGLM: dict[str, tuple[Any, str]] = {
    "chatglm-6b": (ChatGLMTokenizer, "ice_text.model"),
    "chatglm2": (ChatGLM2Tokenizer, "tokenizer.model"),
    "chatglm3": (ChatGLM3Tokenizer, "tokenizer.model"),
    "codegeex2": (ChatGLM2Tokenizer, "tokenizer.model"),
}
# Prompts all of whose pieces are published.
_WITH_PUBLISHED_PIECES = (
    *("chatglm2/single", "chatglm2/zh_edge", "chatglm2/inject", "chatglm3/zh_empty", "chatglm3/inject"),
    *("codegeex2/single", "codegeex2/multi", "codegeex2/inject"),
)


def check(case: dict[str, Any], tokenizer: Any) -> None:
    prompt = families.get(case["family"]).render(
        case["messages"], case.get("tools"), case["add_generation_prompt"], **case.get("template_kwargs") or {}
    )
    expected = case.get("token_ids_with_content_not_parsed_for_specials", case["expected_token_ids"])
    assert list(prompt.ids(tokenizer)) == expected


@pytest.mark.parametrize("case", _PUBLISHED, ids=lambda case: case["id"])
def test_with_published_tokenizers(case: dict[str, Any]) -> None:
    check(case, published_tokenizer(case["tokenizer"]))


@pytest.mark.parametrize("case", [case for case in CASES if case["family"] == "smollm2"], ids=lambda case: case["id"])
def test_with_the_embedded_models_tokenizer(case: dict[str, Any], embedded_folder: Path) -> None:
    check(case, AutoTokenizer.from_pretrained(embedded_folder))


@pytest.mark.parametrize("case", _LLAMA, ids=lambda case: case["id"])
def test_with_llamas_first_vocabulary(case: dict[str, Any]) -> None:
    place = os.environ.get(_VARIABLE)
    if not place:
        pytest.skip(f"{_VARIABLE} names no tokenizer.model or .gguf file of Llama 1 or 2: it may not be shipped")
    path = Path(place)
    options = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    check(case, AutoTokenizer.from_pretrained(path.parent, **options))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["id"] in _WITH_PUBLISHED_PIECES], ids=lambda case: case["id"]
)
def test_with_chatglms_published_pieces(case: dict[str, Any], tmp_path: Path) -> None:
    made, name = _CHATGLM[case["family"]]
    (tmp_path / name).write_bytes(published_chatglm2())
    check(case, made(tmp_path / name))


@pytest.mark.parametrize("case", [case for case in CASES if case["family"] in _CHATGLM], ids=lambda case: case["id"])
def test_with_chatglms_own_vocabulary(case: dict[str, Any]) -> None:
    made, name = _CHATGLM[case["family"]]
    check(case, made(real_file(name)))
