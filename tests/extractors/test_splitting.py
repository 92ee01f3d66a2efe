"""Parts of a text: how long, where they end, what they share, and that nothing is left out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.splitting import Border, Part, borders, split
from tests.tiny import tiny_tokenizer

PIECES = [
    "a",
    "bb ",
    "Mr. ",
    "x" * 23,
    "e\u0301",
    "👨‍👩‍👧",
    "👍🏽",
    "中文",
    "。",
    "，",
    ". ",
    ", ",
    "!\n",
    " ",
    "\n",
    "\n\n",
    "\r\n",
]


def characters(text: str) -> int:
    return len(text)


def texts_of(text: str, parts: list[Part]) -> list[str]:
    return [text[part.start : part.end] for part in parts]


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("One two. Three four.\n\nFive six.", 24, ["One two. Three four.", "Five six."]),
        ("A title\n\nOne two. Three four. Five six.", 31, ["A title\n\nOne two. Three four.", "Five six."]),
        ("One two. Three four. Five", 22, ["One two. Three four.", "Five"]),
        ("Ask Dr. Who about J. S. Bach. Then go.", 31, ["Ask Dr. Who about J. S. Bach.", "Then go."]),
        ("It cost 3.50, i.e. little. We paid it. ", 30, ["It cost 3.50, i.e. little.", "We paid it."]),
        ('He said: "Stop!" She did. So he went.', 30, ['He said: "Stop!" She did.', "So he went."]),
        ("今天天气很好。我们去公园吧！你好吗？", 14, ["今天天气很好。我们去公园吧！", "你好吗？"]),
        ("他说：“走吧。”然后走了。", 10, ["他说：“走吧。”", "然后走了。"]),
        ("天气很好，我们去公园，然后回家", 12, ["天气很好，我们去公园，", "然后回家"]),
        ("one two three four", 9, ["one two", "three", "four"]),
        ("First line\nsecond line, no stop\nthird", 20, ["First line", "second line, no stop", "third"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("  \n", 4, []),
        ("", 4, []),
        (" one ", 4, ["one"]),
    ],
)
def test_a_part_ends_at_the_strongest_border_near_its_end(text: str, limit: int, parts: list[str]) -> None:
    assert texts_of(text, split(text, characters, max_tokens=limit)) == parts


def test_a_heading_stays_with_what_follows() -> None:
    text = "Chapter 1\n\nIt began in spring. Nobody knew why. The trees were late.\n\nChapter 2\n\nIt ended."
    assert texts_of(text, split(text, characters, max_tokens=60))[0].startswith("Chapter 1\n\nIt began in spring.")


def test_parts_share_whole_sentences() -> None:
    text = "One is here. Two is there. Three is gone. Four is back."
    found = texts_of(text, split(text, characters, max_tokens=30, overlap_tokens=15))
    assert found == ["One is here. Two is there.", "Two is there. Three is gone.", "Three is gone. Four is back."]


@pytest.mark.parametrize("overlap", [-1, 8, 9])
def test_an_overlap_as_long_as_a_part_is_refused(overlap: int) -> None:
    with pytest.raises(UnsupportedInput, match="overlap"):
        split("some text", characters, max_tokens=8, overlap_tokens=overlap)


def test_borders_have_their_kinds() -> None:
    text = "Hi there, you. Yes!\nLine\n\nNext 你好"
    found = borders(text)
    assert {text[:at][-5:]: kind for at, kind in found.items() if kind > Border.WORD} == {
        "ere, ": Border.CLAUSE,
        "you. ": Border.SENTENCE,
        "Yes!\n": Border.LINE,
        "ine\n\n": Border.PARAGRAPH,
    }
    assert found[text.index("好")] is Border.WORD


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.integers(1, 24), st.data())
def test_parts_of_any_text(text: str, limit: int, data: st.DataObject) -> None:
    """No part is too long, no border lies inside of a character, nothing but white space is left out."""
    overlap = data.draw(st.integers(0, limit - 1))
    parts = split(text, characters, max_tokens=limit, overlap_tokens=overlap)
    longest_character = len("👨‍👩‍👧")
    for own in texts_of(text, parts):
        assert own == own.strip() != ""
        assert len(own) <= max(limit, longest_character)
        assert own[0] not in "\u0301\u200d🏽"
    for last, part in pairwise(parts):
        assert last.start < part.start
        assert last.end < part.end
        assert last.end - part.start <= overlap
    covered = {at for part in parts for at in range(part.start, part.end)}
    assert all(at in covered or sign.isspace() for at, sign in enumerate(text))


def test_parts_by_the_tokens_of_a_model() -> None:
    tokenizer = tiny_tokenizer()

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    text = "Harry was a chubby brown beagle who loved chicken. 小狗的名字叫哈利，它的颜色是棕色。\n\n" * 40
    parts = split(text, count, max_tokens=100, overlap_tokens=20)
    lengths = [count(own) for own in texts_of(text, parts)]
    assert max(lengths) <= 100
    assert min(lengths[:-1]) > 50  # so that few requests do the work
    assert all(0 < count(text[part.start : last.end]) <= 20 for last, part in pairwise(parts))
