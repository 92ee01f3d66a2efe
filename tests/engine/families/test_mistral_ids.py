"""Ids of Mistral's formats, with the vocabularies in the vendor's package mistral-common.

Only its data files are read: installed, it would have transformers read Mistral's tokenizers in another way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from chatlocal.engine import families
from chatlocal.engine.families import Markup
from tests.packaged import packaged_file

_GOLDEN = Path(__file__).parents[2] / "golden"
_SENTENCEPIECE = {
    "mistral": "tokenizer.model.v1",
    "mixtral": "tokenizer.model.v1",
    "mistral_v2": "mistral_instruct_tokenizer_240216.model.v2",
    "mistral_v3": "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_v7": "mistral_instruct_tokenizer_241114.model.v7",
}
_TEKKEN = "tekken_240718.json"
# The control tokens that the tekken file leaves to the code, in the order of their ids (mistral-common's tekken.py).
_TEKKEN_CONTROL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"),
)
CASES = [
    case
    for file in ("prompts.json", "mistral_prompts.json")
    for case in json.loads((_GOLDEN / file).read_text("utf-8"))
    if case["family"] in (*_SENTENCEPIECE, "mistral-nemo") and "error" not in case
]

# The ids that a prompt has with the vocabulary of a family.
Ids = Callable[[str, families.Prompt], list[int]]


def vocabulary(file: str) -> bytes:
    return packaged_file("mistral_common", f"data/{file}")


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Ids:
    @cache
    def sentencepiece(file: str) -> Any:
        folder = tmp_path_factory.mktemp("vocabulary")
        (folder / "tokenizer.model").write_bytes(vocabulary(file))
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)

    @cache
    def tekken() -> tuple[Any, int, int]:
        from chatlocal.engine.tokenizers.tiktoken_file import fast_tokenizer

        read = json.loads(vocabulary(_TEKKEN))
        config = read["config"]
        kept = config["default_vocab_size"] - config["default_num_special_tokens"]
        ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in read["vocab"][:kept]}
        tokenizer = fast_tokenizer(ranks, config["pattern"], _TEKKEN_CONTROL)
        return tokenizer, kept, config["default_num_special_tokens"]

    def found(family: str, prompt: families.Prompt) -> list[int]:
        if family in _SENTENCEPIECE:
            return list(prompt.ids(sentencepiece(_SENTENCEPIECE[family])))
        # The control tokens come first in the vendor's numbering, and last in this one.
        tokenizer, kept, before = tekken()
        return [id + before if id < kept else id - kept for id in prompt.ids(tokenizer)]

    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_ids_are_those_of_mistral_common(case: dict[str, Any], ids: Ids) -> None:
    prompt = families.get(case["family"]).render(
        case["messages"], case.get("tools"), continue_final_message=case.get("continue_final_message", False)
    )
    assert ids(case["family"], prompt) == case["expected_token_ids"]


@pytest.mark.parametrize("name", ["mistral", "mistral_v3", "mistral-nemo", "mistral_v7"])
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_content_never_yields_a_control_id(name: str, data: st.DataObject, ids: Ids) -> None:
    pieces = st.sampled_from(
        ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL", "_CALLS]", " ", "a", "杭"]
    )
    text = st.lists(pieces, min_size=1, max_size=8).map("".join)
    messages = [{"role": "user", "content": data.draw(text)}, {"role": "assistant", "content": data.draw(text)}]
    prompt = families.get(name).render([*messages, {"role": "user", "content": data.draw(text)}])
    marks = sum(isinstance(part, Markup) for part in prompt.parts)
    # The ids of control tokens come before all others, but for the unknown token's, which text may have.
    last = {"mistral": 2, "mistral_v3": 750, "mistral-nemo": 999, "mistral_v7": 748}[name]
    assert sum(1 <= id <= last for id in ids(name, prompt)) == marks
