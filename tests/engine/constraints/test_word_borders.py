"""Where words begin and end."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.constraints.word_borders import borders, pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Ann's dog", ["Ann", "'", "s", " ", "dog"]),
        ("a_b c1", ["a_b", " ", "c1"]),
        ("3.5 kg", ["3", ".", "5", " ", "kg"]),
        ("我叫Ann。", ["我", "叫", "Ann", "。"]),
        ("서울에서", ["서", "울", "에", "서"]),
        ("カタカナ", ["カ", "タ", "カ", "ナ"]),
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("e\u0301", ["e\u0301"]),
        ("がが", ["が", "が"]),
        ("か\u3099か", ["か\u3099", "か"]),
        ("👩\u200d👧👍🏽x", ["👩\u200d👧", "👍🏽", "x"]),
        ("Привет, мир", ["Привет", ",", " ", "мир"]),
        ("  ", [" ", " "]),
    ],
)
def test_the_pieces_of_a_text(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(st.text(st.characters(codec="utf-8")))
def test_the_pieces_together_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert borders(text)[-1] == len(text)


@given(st.text(st.sampled_from("ab1_ -.\u0301\u3099\u200d你👩🏽가")))
def test_no_border_before_a_mark_and_within_a_word(text: str) -> None:
    found = borders(text)
    for place in range(1, len(text)):
        before, after = text[place - 1], text[place]
        if unicodedata.category(after)[0] == "M" or "\u200d" in (before, after) or (before + after).isidentifier():
            unspaced = before in "你가" or after in "你가"
            assert place not in found or (unspaced and unicodedata.category(after)[0] != "M")
