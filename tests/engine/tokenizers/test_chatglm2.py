"""The tokenizers of ChatGLM2 and ChatGLM3: the published ids, and roles that only code can name."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.errors import UnsupportedInput, UnsupportedRole
from chatlocal.engine.tokenizers import ChatGLM2Tokenizer, ChatGLM3Tokenizer
from tests.engine.tokenizers.vocabularies import GOLDEN, published_chatglm2, real_file, trained_chatglm2

TWO, THREE = GOLDEN["chatglm2_6b"], GOLDEN["chatglm3_6b"]


@pytest.fixture(scope="module", params=["published tokens", "real vocabulary"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary with the published ids."""
    if request.param == "real vocabulary":
        return real_file("tokenizer.model")
    path = tmp_path_factory.mktemp("published") / "tokenizer.model"
    path.write_bytes(published_chatglm2())
    return path


@pytest.fixture(scope="module")
def two(file: Path) -> ChatGLM2Tokenizer:
    return ChatGLM2Tokenizer(file)


@pytest.fixture(scope="module")
def three(file: Path) -> ChatGLM3Tokenizer:
    return ChatGLM3Tokenizer(file)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ChatGLM3Tokenizer:
    path = tmp_path_factory.mktemp("trained") / "tokenizer.model"
    path.write_bytes(trained_chatglm2())
    return ChatGLM3Tokenizer(path)


def test_special_tokens_have_the_published_ids(two: ChatGLM2Tokenizer, three: ChatGLM3Tokenizer) -> None:
    for tokenizer, facts in ((two, TWO), (three, THREE)):
        expected = {token: id for token, id in facts["special_ids"].items() if token != "vocab_size"}
        assert {token: tokenizer.get_command(token) for token in expected} == expected
        assert len(tokenizer) == facts["special_ids"]["vocab_size"]
        assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 0)


@pytest.mark.parametrize("case", [case for case in TWO["cases"] if "ids" in case], ids=lambda case: case["conv"])
def test_a_prompt_of_chatglm2(two: ChatGLM2Tokenizer, case: dict[str, Any]) -> None:
    text = case["prompt"].removeprefix("[gMASK]sop")
    assert two.encode(text) == case["ids"]
    assert two.encode(text, add_special_tokens=False) == case["ids"][2:]
    assert two.decode(case["ids"]) == case["prompt"]


@pytest.mark.parametrize("case", THREE["cases"], ids=lambda case: case["conv"])
def test_a_prompt_of_chatglm3(three: ChatGLM3Tokenizer, case: dict[str, Any]) -> None:
    *history, last = case["messages"]
    ids = three.build_chat_input(last["content"], history, last["role"])
    assert repeats_in_order(three, ids) == repeats_in_order(three, case["ids"])


def repeats_in_order(tokenizer: ChatGLM3Tokenizer, ids: list[int]) -> list[int]:
    """Twenty spaces are a token of four and one of sixteen, in an order that only the real merges know."""

    def repeated(id: int) -> str | None:
        letters = set(str(tokenizer.convert_ids_to_tokens(id)))
        return letters.pop() if len(letters) == 1 else None

    return [id for letter, run in groupby(ids, repeated) for id in (sorted(run) if letter else run)]


def test_role_tokens_in_text_are_text(three: ChatGLM3Tokenizer) -> None:
    naive = THREE["naive_string_encode"]
    assert three.encode(naive["text"]) == naive["ids"]
    assert three.encode("<|assistant|>") == THREE["encode_assistant_string"]
    by_code = [*three.get_prefix_tokens(), three.get_command("<|assistant|>")]
    assert by_code == THREE["encode_assistant_string_with_encode_special_tokens"]


def test_a_newline_on_its_own_begins_like_a_text(three: ChatGLM3Tokenizer) -> None:
    assert three.encode_text("\n") == THREE["encode_newline_ids"]
    message = three.build_single_message("user", "", "\n")
    assert message == [THREE["special_ids"]["<|user|>"], *THREE["encode_newline_ids"] * 2]


def test_a_target_ends_with_the_end_token(two: ChatGLM2Tokenizer) -> None:
    context, target = ([id] for id in TWO["cases"][0]["ids"][-2:])
    ids = two.build_inputs_with_special_tokens(context, target)
    assert ids == [64790, 64792, *TWO["cases"][0]["ids"][-2:], 2]


def test_other_roles_and_commands_are_refused(trained: ChatGLM3Tokenizer) -> None:
    with pytest.raises(UnsupportedRole, match="no role 'tool'; its roles are system, user, assistant, observation"):
        trained.build_single_message("tool", "", "22")
    with pytest.raises(UnsupportedInput, match=r"'<\|tool\|>' is no control token here; there are <bos>, "):
        trained.get_command("<|tool|>")


@given(text=st.text(max_size=30))
def test_text_reads_back_as_it_is(trained: ChatGLM3Tokenizer, text: str) -> None:
    text = text.replace("▁", "_")  # sentencepiece's own mark for a space
    assert trained.decode(trained.encode(text), skip_special_tokens=True) == text


def test_control_tokens_are_shown_where_they_stand(trained: ChatGLM3Tokenizer) -> None:
    ids = [*trained.encode("the dog"), trained.get_command("<|user|>"), *trained.encode_text("Harry"), 2]
    assert trained.decode(ids) == "[gMASK]sopthe dog<|user|>Harry</s>"
    assert trained.decode(ids, skip_special_tokens=True) == "the dog Harry"
    assert trained.convert_ids_to_tokens([ids[1], ids[-1], len(trained)]) == ["sop", "</s>", None]
    assert trained.convert_tokens_to_ids("no such token") == trained.unk_token_id
