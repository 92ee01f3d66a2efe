from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.families.neutral import Neutralizer
from chatlocal.engine.families.prompt import Markup, Text

CONTROL = ("<a>", "<ab>", "[END]")
_pieces = st.lists(st.sampled_from([*CONTROL, *"<>ab ", "[EN", "D]", "\U000f0000", "\U000f0001"]), max_size=8)
_text = _pieces.map("".join)


@given(st.lists(_text, max_size=4))
def test_content_between_markup_comes_back_as_text(contents: list[str]) -> None:
    neutralizer = Neutralizer(CONTROL, contents)
    rendered = "<a>".join(neutralizer.neutral(content, edges=True) for content in contents)
    parts = neutralizer.cut(rendered)
    between = max(len(contents) - 1, 0)
    assert [part for part in parts if isinstance(part, Markup)] == [Markup("<a>")] * between
    assert [part.text for part in parts if isinstance(part, Text)] == [content for content in contents if content]


@given(_text)
def test_nothing_of_a_control_token_is_left_in_the_middle_of_a_template(content: str) -> None:
    """Whatever a template puts right beside the content, the two make no control token."""
    neutralizer = Neutralizer(CONTROL, content)
    neutral = neutralizer.neutral(content, edges=True)
    if not content:
        return
    for token in CONTROL:
        for start in range(len(token)):
            for end in range(max(start, 1), len(token) + 1):
                before, after = token[:start], token[end:]
                assert neutralizer.cut(before + neutral + after) == (Text(before + content + after),)


@pytest.mark.parametrize("value", [None, 3, True, {"k": ["<a>", {"<ab>": "x"}]}, "plain"])
def test_plain_data_keeps_its_shape(value: object) -> None:
    neutralizer = Neutralizer(CONTROL, value)
    neutral = neutralizer.neutral(value)
    assert "<a>" not in str(neutral)
    if isinstance(value, dict):
        assert {neutralizer.restored(key): [neutralizer.restored(items[0])] for key, items in neutral.items()} == {
            "k": ["<a>"]
        }
    else:
        assert neutral == value


def test_kept_tokens_stay() -> None:
    neutralizer = Neutralizer(CONTROL, "<a><ab>")
    neutral = neutralizer.neutral("<a><ab>", keep=frozenset({"<a>"}))
    assert neutralizer.cut(neutral) == (Markup("<a>"), Text("<ab>"))


def test_the_longest_token_is_cut_out() -> None:
    neutralizer = Neutralizer(("<", "<|x|>"), "")
    assert neutralizer.cut("<|x|><") == (Markup("<|x|>"), Markup("<"))
