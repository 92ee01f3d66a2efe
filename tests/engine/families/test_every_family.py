"""What holds for every family, whatever its format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlocal.engine import families
from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families import Markup
from tests.tiny import tiny_tokenizer

NAMES = families.names()
each_family = pytest.mark.parametrize("name", NAMES)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def control(name: str) -> list[str]:
    return sorted(families.get(name).render([user("Hi")]).control)


def tokenizer_of(name: str) -> Any:
    """A tokenizer that has every control token of the family as a token."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    tokenizer.add_special_tokens({"extra_special_tokens": control(name)})
    return tokenizer


TOKENIZERS = {name: tokenizer_of(name) for name in NAMES}


@each_family
@settings(max_examples=25)
@given(data=st.data())
def test_content_never_yields_a_control_id(name: str, data: st.DataObject) -> None:
    pieces = st.sampled_from([*control(name), "<|im_", "start|>", "[/", "INST]", " ", "\n", "a", "杭州"])
    text = st.lists(pieces, min_size=1, max_size=8).map("".join).filter(str.strip)
    messages = [user(data.draw(text)), assistant(data.draw(text)), user(data.draw(text))]
    prompt = families.get(name).render(messages)
    tokenizer = TOKENIZERS[name]
    known = {id: token for token, id in tokenizer.get_added_vocab().items()}
    found = [known[id] for id in prompt.ids(tokenizer) if id in known]
    assert found == [part.text for part in prompt.parts if isinstance(part, Markup)]


@each_family
def test_the_text_is_all_there(name: str) -> None:
    prompt = families.get(name).render([user("one"), assistant("two"), user("three")])
    places = [prompt.text.index(word) for word in ("one", "two", "three")]
    assert places == sorted(places)
    assert TOKENIZERS[name].decode(prompt.ids(TOKENIZERS[name])).count("three") == 1


@each_family
def test_a_system_text_has_a_place_or_is_refused_or_merged(name: str) -> None:
    family = families.get(name)
    messages = [{"role": "system", "content": "Be brief."}, user("Hi")]
    if family.takes_system:
        assert "Be brief." in family.render(messages).text
    else:
        with pytest.raises(UnsupportedRole, match="index 0"):
            family.render(messages)
        merged = family.render(messages, merge_system=True)
        assert merged == family.render([user("Be brief.\n\nHi")])


@each_family
def test_turns_of_one_role_in_a_row_are_joined_only_where_roles_must_alternate(name: str) -> None:
    family = families.get(name)
    messages = [user("a"), user("b")]
    if family.render(messages) == family.render([user("a\n\nb")]):
        with pytest.raises(TemplateError, match="message 1 "):
            family.render(messages, strict=True)
    else:
        assert family.render(messages, strict=True) == family.render(messages)


@each_family
def test_content_in_parts_and_none(name: str) -> None:
    family = families.get(name)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert family.render([user(parts)]) == family.render([user("ab")])
    assert family.render([user(None)]) == family.render([user("")])
    with pytest.raises(UnsupportedInput, match="image"):
        family.render([user([{"type": "image_url", "image_url": {"url": "x.png"}}])])


@each_family
def test_an_unfinished_answer_is_continued_where_it_ends(name: str) -> None:
    family = families.get(name)
    unfinished = "Sure: the first of them"
    messages = [user(unfinished), assistant(unfinished), user(unfinished), assistant(unfinished)]
    prompt = family.render(messages, continue_final_message=True)
    assert prompt.text.endswith(unfinished)
    assert prompt.text.count(unfinished) == 4
    assert len({char for char in prompt.text if "\ue000" <= char <= "\uf8ff"}) == 0


@each_family
def test_only_an_answer_can_be_continued(name: str) -> None:
    with pytest.raises(UnsupportedInput, match="continue_final_message"):
        families.get(name).render([user("Hi")], continue_final_message=True)


@each_family
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedInput, match="no_such_option"):
        families.get(name).render([user("Hi")], no_such_option=1)


@each_family
def test_a_turn_ends_with_a_stop_or_another_turn_is_one(name: str) -> None:
    """What is written behind an answer must end it, or the model would go on with the user's next turn."""
    prompt = families.get(name).render([user("one"), assistant("two"), user("three")])
    after = prompt.text[prompt.text.index("two") + 3 : prompt.text.index("three")]
    ends = [*prompt.stop_strings, *prompt.next_turn]
    assert any(end in after or end.strip() in after for end in ends)


@each_family
def test_a_thousand_turns_grow_the_prompt_evenly(name: str) -> None:
    family = families.get(name)
    turns = [user("question"), assistant("answer")]
    sizes = [len(family.render([*turns * count, user("last")]).parts) for count in (100, 200, 300)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


@pytest.mark.parametrize("name", ["qwen3", "qwen3-thinking-2507", "qwq", "glm4.5", "deepseek-v3.1"])
def test_an_open_thought_is_continued_behind_its_mark(name: str) -> None:
    prompt = families.get(name).render([user("1+1?"), assistant("<think>\nTwo")], continue_final_message=True)
    assert prompt.parts[-2].text == "<think>"
    assert isinstance(prompt.parts[-2], Markup)
    assert prompt.text.endswith("<think>\nTwo")
    assert prompt.text.count("think>") == 1
    assert prompt.opened == "<think>\nTwo"


@each_family
@pytest.mark.parametrize("flag", ["strict", "merge_system", "continue_final_message", "parse_control_tokens"])
def test_what_is_on_or_off_is_true_or_false(name: str, flag: str) -> None:
    with pytest.raises(UnsupportedInput, match="True or False"):
        families.get(name).render([user("Hi")], **{flag: "false"})
