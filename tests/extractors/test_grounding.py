"""Where values stand in a text: offsets of the text as it was given, and how they were found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.extractors.grounding import align, align_all


def found(value: object, text: str) -> tuple[str, str] | None:
    """What of the text a value is aligned to, and how it matched."""
    span = align(value, text)
    return None if span is None else (text[span.start : span.end], span.match)


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("Rex", "A dog called Rex.", ("Rex", "exact")),
        (" Rex ", "A dog called Rex.", ("Rex", "exact")),
        ("rex", "A dog called Rex.", ("Rex", "normalised")),
        ("John Smith", "by John\n   Smith.", ("John\n   Smith", "normalised")),
        ("it's", "He said it’s late.", ("it’s", "normalised")),
        ('the "Ritz"', "at the “Ritz” again", ("the “Ritz”", "normalised")),
        ("1990-95", "from 1990–95 on", ("1990–95", "normalised")),
        ("ABC123", "编号：ＡＢＣ１２３。", ("ＡＢＣ１２３", "normalised")),
        ("ｶﾀｶﾅ", "これはカタカナです", ("カタカナ", "normalised")),
        ("caf\u00e9", "a cafe\u0301 here", ("cafe\u0301", "normalised")),
        ("STRASSE", "die Straße", ("Straße", "normalised")),
        ("張三", "我叫張 三。", ("張 三", "normalised")),
        ("Google北京", "在 Google 北京 工作", ("Google 北京", "normalised")),
        ("co\u00adoperate", "They cooperate.", ("cooperate", "normalised")),
        ("John Smyth", "by John Smith.", ("John Smith", "fuzzy")),
        ("colour television", "a color television set", ("color television", "fuzzy")),
        ("Anna Berg", "by Anna Maria Berg.", ("Anna Maria Berg", "fuzzy")),
    ],
)
def test_a_value_is_found(value: str, text: str, expected: tuple[str, str]) -> None:
    assert found(value, text) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Tom", "A dog called Rex."),
        ("an", "A banana."),
        ("", "A dog."),
        ("  ", "A dog."),
        ("Rex", ""),
        ("Room 215", "Room 214 is free."),  # nearly the same letters, another thing
        ("12", "It weighs 12.5 kg."),
        ("Anna Berg", "Anna saw how a whole Berg came down."),
        ("Anna Berg", "Berg, Anna"),
        ("200", "It costs 1,200 EUR."),
        ("1", "In 2021."),
        (True, "true"),
        (None, "null"),
        (3, "三星 makes phones"),
    ],
)
def test_what_is_not_there_is_not_found(value: object, text: str) -> None:
    assert align(value, text) is None


def test_a_whole_word_goes_before_a_part_of_one() -> None:
    text = "The Annex belongs to Ann."
    assert align("Ann", text).start == text.rindex("Ann")  # type: ignore[union-attr]
    assert found("ann", text) == ("Ann", "normalised")


def test_a_long_part_of_a_word_is_found_where_nothing_better_is() -> None:
    assert found("super", "a supermarket") == ("super", "exact")


def test_chinese_needs_no_borders() -> None:
    assert found("北京大学", "他在北京大学学习。") == ("北京大学", "exact")
    assert found("李", "李四") == ("李", "exact")


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ("1200", "costs 1,200 EUR", "1,200"),
        ("1,200", "costs 1200 EUR", "1200"),
        (1200, "costs 1 200 EUR", "1 200"),
        (1200, "kostet 1.200 EUR", "1.200"),
        (1200.5, "kostet 1.200,50 EUR", "1.200,50"),
        (3, "three dogs", "three"),
        ("3", "Three dogs", "Three"),
        (23, "twenty-three dogs", "twenty-three"),
        (23, "twenty three dogs", "twenty three"),
        (1_200_000, "1.2 million people", "1.2 million"),
        (35_000, "共3.5万元", "3.5万"),
        (320, "三百二十元", "三百二十"),
        (15, "十五岁", "十五"),
        (3, "三只狗", "三"),
        (10_500, "一万五百人", "一万五百"),
        (0.15, "15% of it", "15%"),
        ("2024-03-01", "on 1 March 2024", "1 March 2024"),
        ("2024-03-01", "on March 1st, 2024", "March 1st, 2024"),
        ("2024-03-01", "am 01.03.2024", "01.03.2024"),
        ("2024-03-01T10:00:00Z", "on 3/1/2024", "3/1/2024"),
        ("2024-03-01", "2024年3月1日", "2024年3月1日"),
        ("March 1, 2024", "on 2024-03-01", "2024-03-01"),
    ],
)
def test_numbers_and_dates_are_read_as_what_they_mean(value: object, text: str, expected: str) -> None:
    assert found(value, text) == (expected, "normalised")


def test_a_number_as_it_is_written_is_exact() -> None:
    assert found(1200, "1200 EUR") == ("1200", "exact")
    assert found(12.5, "12.5 kg") == ("12.5", "exact")
    assert found(-5, "at -5 degrees") == ("-5", "exact")
    assert found(2024, "on 12.05.2024") == ("2024", "exact")


def test_equal_values_go_to_successive_places() -> None:
    text = "Paris, Rome, Paris, Annex, PARIS."
    spans = align_all(["Paris", "Rome", "Paris", "Paris", "Paris"], text)
    places = [None if span is None else (span.start, span.match) for span in spans]
    assert places == [(0, "exact"), (7, "exact"), (13, "exact"), (27, "normalised"), (27, "normalised")]


def test_values_that_differ_in_case_share_their_places() -> None:
    spans = align_all(["Rex", "rex"], "Rex and Rex")
    assert [span and span.start for span in spans] == [0, 8]


words = st.text(
    st.characters(codec="utf-8", categories=("L", "M", "N", "P", "Zs", "Cf", "Sk"), include_characters="\n\t'\""),
    max_size=30,
)


@given(words, words, words)
def test_offsets_are_those_of_the_text_as_it_is(before: str, value: str, after: str) -> None:
    text = f"{before} {value} {after}"
    span = align(value, text)
    if span is None:
        assert not (value.isascii() and value.isalpha())
    else:
        assert 0 <= span.start < span.end <= len(text)
        if span.match == "exact":
            assert text[span.start : span.end] == value.strip()


@given(words)
def test_case_and_width_do_not_move_offsets(value: str) -> None:
    wide = "".join(chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else character for character in value)
    text = f"Ａ  ﬁ {wide.upper()} …"
    span = align("Ａ", text)
    assert span is not None
    assert (span.start, span.end) == (0, 1)


def test_a_long_text_is_read_once() -> None:
    """100,000 characters and a thousand values: seconds would say that each value reads the text anew."""
    text = " ".join(f"Person {number} lives at {number * 37 % 1000} Main Street." for number in range(3000))
    values = [f"person {number}" for number in range(0, 3000, 3)]
    spans = align_all(values, text)
    assert [text[span.start : span.end].lower() for span in spans if span is not None] == values
