from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.errors import UnsupportedInput
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


@given(st.lists(st.text(st.sampled_from("<a|b>"), min_size=1, max_size=6), min_size=1, max_size=30), st.data())
def test_tokens_are_found_leftmost_and_longest(control: list[str], data: st.DataObject) -> None:
    """As tokenizers do; here by trying them one by one at every place."""
    text = data.draw(st.lists(st.sampled_from([*control, *"<a|b>"]), max_size=8).map("".join))
    found, place = [], 0
    while place < len(text):
        fitting = [token for token in control if text.startswith(token, place)]
        longest = max(fitting, key=len, default="")
        if longest:
            found.append(Markup(longest))
        elif found and isinstance(found[-1], Text):
            found[-1] = Text(found[-1].text + text[place])
        else:
            found.append(Text(text[place]))
        place += len(longest) or 1
    assert Neutralizer(control, "").cut(text) == tuple(found)


def test_a_token_may_be_longer_than_anything_may_be_deep() -> None:
    control = ("<" + "a" * 5000 + ">", "<" + "a" * 5000 + "b>")
    assert Neutralizer(control, "").cut(f"x{control[1]}{control[0]}") == (
        Text("x"),
        Markup(control[1]),
        Markup(control[0]),
    )


def test_tokens_that_are_not_special_are_told_apart() -> None:
    parts = Neutralizer(CONTROL, "").cut("<a>x<ab>", frozenset({"<a>"}))
    assert parts == (Markup("<a>"), Text("x"), Markup("<ab>", special=False))


@pytest.mark.parametrize("content", ["<a>", "<a>b", "b<a>", "<a>[EN", "D]<a>"])
def test_kept_tokens_stay_at_the_edges_too(content: str) -> None:
    neutralizer = Neutralizer(CONTROL, content)
    neutral = neutralizer.neutral(content, keep=frozenset({"<a>"}), edges=True)
    assert "<a>" in neutral
    assert neutralizer.restored(neutral) == content


class Shout(str):
    """A text that is more than a text."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


def test_templates_get_plain_texts() -> None:
    neutral = Neutralizer(CONTROL, ()).neutral(Shout("plain"))
    assert (type(neutral), neutral) == (str, "plain")


@pytest.mark.parametrize("value", [b"x", {"k": object()}, [{1, 2}], 1j])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(UnsupportedInput, match="Chat templates are given text, numbers, lists and dicts"):
        Neutralizer(CONTROL, ()).neutral(value)
