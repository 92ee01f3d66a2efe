"""The embedded model's prompts: those of the reference, and ids that are its own tokenizer's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chatlocal.engine import families
from chatlocal.engine.families.control import control_tokens
from tests.engine.families.conversations import conversations, imitates, says

_GOLDEN = Path(__file__).parents[2] / "golden" / "prompts.json"
CASES = [case for case in json.loads(_GOLDEN.read_text("utf-8")) if case["family"] == "smollm2"]
_TYPED = "token_ids_with_content_not_parsed_for_specials"

Messages = list[dict[str, Any]]
_ROLES = st.sampled_from(["user", "assistant", "system"])
_CONTROL = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<file_sep>")
_HOSTILE = st.lists(st.sampled_from([*_CONTROL, "<|im_", "end|>", *"<\né", "system"]), min_size=1, max_size=6).map(
    "".join
)


@pytest.fixture(scope="module")
def family(embedded_tokenizer: Any) -> families.Family:
    return families.resolve(embedded_tokenizer, None).family


def official_ids(tokenizer: Any, messages: Messages, **options: Any) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, return_dict=True, **options)["input_ids"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_prompts_are_those_of_the_reference(
    case: dict[str, Any], family: families.Family, embedded_tokenizer: Any
) -> None:
    prompt = family.render(case["messages"], add_generation_prompt=case["add_generation_prompt"])
    assert prompt.text == case["expected_prompt"]
    assert list(prompt.segments) == case["expected_segments"]
    assert list(prompt.ids(embedded_tokenizer)) == case.get(_TYPED, case["expected_token_ids"])
    assert list(prompt.stop_strings) == case["stop_words"]
    assert prompt.stop_ids(embedded_tokenizer) == {2}
    assert prompt.next_turn == ()


@pytest.mark.parametrize("case", [case for case in CASES if _TYPED in case], ids=lambda case: case["id"])
def test_typed_control_tokens_that_are_asked_for_are_the_references(
    case: dict[str, Any], family: families.Family, embedded_tokenizer: Any
) -> None:
    prompt = family.render(case["messages"], parse_control_tokens=True)
    assert list(prompt.ids(embedded_tokenizer)) == case["expected_token_ids"]


@given(conversations(), st.booleans())
def test_ids_are_the_tokenizers_own(
    family: families.Family, embedded_tokenizer: Any, messages: Messages, asking: bool
) -> None:
    assume(not imitates(messages, control_tokens(embedded_tokenizer)))
    prompt = family.render(messages, add_generation_prompt=asking)
    assert list(prompt.ids(embedded_tokenizer)) == official_ids(
        embedded_tokenizer, messages, add_generation_prompt=asking
    )


@given(conversations())
def test_ids_of_what_goes_on_are_too(family: families.Family, embedded_tokenizer: Any, messages: Messages) -> None:
    assume(not imitates(messages, control_tokens(embedded_tokenizer)))
    if messages[-1]["role"] == "user":
        messages.append(says("assistant", messages[-1]["content"]))
    prompt = family.render(messages, continue_final_message=True)
    assert list(prompt.ids(embedded_tokenizer)) == official_ids(
        embedded_tokenizer, messages, continue_final_message=True
    )


@given(st.lists(st.tuples(_ROLES, _HOSTILE | st.sampled_from(["the dog", "Hi"])), min_size=1, max_size=4))
def test_ids_differ_only_where_content_imitates_control_tokens(
    family: families.Family, embedded_tokenizer: Any, pairs: list[tuple[str, str]]
) -> None:
    messages = [says(role, content) for role, content in pairs]
    control = control_tokens(embedded_tokenizer)
    ids = list(family.render(messages).ids(embedded_tokenizer))
    official = official_ids(embedded_tokenizer, messages, add_generation_prompt=True)
    assert (ids != official) == imitates(messages, control)


@given(_HOSTILE)
def test_typed_control_tokens_stay_text(family: families.Family, embedded_tokenizer: Any, content: str) -> None:
    ids = family.render([says("system", "S"), says("user", content)]).ids(embedded_tokenizer)
    control = set(control_tokens(embedded_tokenizer).values())
    # The template's own: <|im_start|> system <|im_end|> <|im_start|> user <|im_end|> <|im_start|> assistant.
    assert [id for id in ids if id in control] == [1, 2, 1, 2, 1]
    start = [place for place, id in enumerate(ids) if id in control][2]
    assert embedded_tokenizer.decode(ids[start + 1 : -6]) == "user\n" + content
