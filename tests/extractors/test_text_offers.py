"""What a text offers as values, and how many records it has room for."""

from __future__ import annotations

import pytest

from chatlocal.extractors.record_parts import Needs, border, marks_between
from chatlocal.extractors.text_offers import Offer, date_offers, number_offers, span_offers, torn_borders


def spans(text: str) -> set[str]:
    found = list(span_offers(text))
    assert all(text[each.start : each.end] == each.value for each in found)
    return {each.value for each in found}


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("Call Mr. Lee, room B-12.", {"Lee", "Mr. Lee", "B-12", "room B-12"}, {"Lee, room", "B-12."}),
        ("It ended. Then Ann left.", {"Ann", "Then Ann left"}, {"ended. Then", "ended Then"}),
        (
            "one two three four five six seven eight nine",
            {"one two three four five six seven eight"},
            {"one two three four five six seven eight nine"},
        ),
        ("mail a.b@c.example (today)", {"a.b@c.example", "today"}, {"a.b@c.example (today"}),
        ("《晚风》是林远写的。", {"晚风", "林远"}, {"《晚风", "是林远", "写的"}),
        ("the old bridge in The Hague", {"old bridge", "The Hague"}, {"the old bridge"}),
        ("", set(), set()),
    ],
)
def test_spans_go_from_word_to_word_within_a_sentence(text: str, inside: set[str], outside: set[str]) -> None:
    found = spans(text)
    assert inside <= found
    assert not outside & found


def test_numbers_come_as_digits_and_as_they_are_written() -> None:
    found = {(each.words, each.value) for each in number_offers("two of 1,200.50", whole=False)}
    assert found == {("2", 2), ("two", 2), ("1200.5", 1200.5), ("1,200.50", 1200.5)}
    assert {each.value for each in number_offers("two of 1,200.50", whole=True)} == {2}


def test_dates_come_in_the_form_of_json_schema() -> None:
    assert {each.value for each in date_offers("on 3 March 2024")} == {"2024-03-03"}


@pytest.mark.parametrize(("word", "torn"), [("北京", 1), ("晴", 1), ("北京晴", 0)])
def test_a_span_may_end_within_a_chinese_word(word: str, torn: int) -> None:
    text = "北京晴，18度"
    start = text.index(word)
    assert torn_borders(text, Offer(word, word, start, start + len(word))) == torn


def test_words_between_spaces_are_never_torn() -> None:
    assert torn_borders("in Oslo today", Offer("Oslo", "Oslo", 3, 7)) == 0


TALE = "Ann got 14 votes on 2024-01-02, Bo 11 on 2024-01-03; room B-12."


def test_room_for_records_is_counted_by_what_each_must_have() -> None:
    assert Needs(TALE, 1, 0).room(0, len(TALE)) == 2  # a date's digits and a name's are no numbers
    assert Needs(TALE, 1, 1).room(0, len(TALE)) == 2
    assert Needs(TALE, 2, 0).room(0, len(TALE)) == 1
    assert Needs(TALE, 1, 0).room(TALE.index("Bo"), len(TALE)) == 1


def test_the_border_between_two_records_is_the_strongest_mark() -> None:
    text = "Ann, 35, a cook; Bo, 28"
    assert border(text, 3, text.index("Bo")) == text.index(" Bo")
    text = "Ann (6, tall) and Bo"
    assert border(text, 3, text.index("Bo")) == text.index(" Bo")
    assert border("Ann Bo", 3, 4) == 4


def test_marks_are_counted_between_two_places() -> None:
    assert marks_between("a, b; c. d", 0, 9) == 3
