"""Values as they go on in the text that they are taken from."""

from __future__ import annotations

import pytest

from chatlocal.engine.runtime.source_text import SourceText

TEXT = SourceText(
    "Flight LX318 to Zurich costs 482.75 euros, says Ben Carter, the plumber. He met Mrs. Doyle at 06:45."
    " The kitchen has 12 tables. 赵敏住在南京。".encode()
)


@pytest.mark.parametrize(
    ("begun", "goes_on"),
    [
        ("Zur", "ich"),
        ("B", "en Carter"),
        ("Ben Carter", ""),
        ("plumb", "er"),
        ("Mrs", ". Doyle"),
        ("0", "6:45"),
        ("The", " kitchen"),
        ("12", " tables"),
        ("Flight", " LX318"),
        ("南", "京"),
    ],
)
def test_a_string_goes_on_to_the_end_of_its_phrase(begun: str, goes_on: str) -> None:
    further = TEXT.going_on(begun.encode(), quoted=True)
    assert further is not None
    assert further.text.decode() == goes_on


def test_a_number_goes_on_to_its_last_digit() -> None:
    further = TEXT.going_on(b"48", quoted=False)
    assert further is not None
    assert further.text == b"2.75"


def test_a_value_is_found_where_a_word_begins() -> None:
    assert TEXT.going_on(b"arter", quoted=True) is None
    assert TEXT.going_on(b"Vienna", quoted=True) is None


def test_where_a_value_is_not_there_its_last_word_may_be() -> None:
    further = TEXT.going_on(b"The plumber Car", quoted=True)
    assert further is not None
    assert further.text == b"ter"
    assert further.certain == "last word"


def test_the_value_that_comes_next_stands_behind_the_last_one() -> None:
    text = SourceText(b"Ann is 41 and Bob is 36.")
    assert text.next_value(quoted=True) is None
    text.going_on(b"Ann", quoted=True)
    number, name = text.next_value(quoted=False), text.next_value(quoted=True)
    assert number is not None
    assert number.text == b"41"
    assert name is not None
    assert name.text == b"Bob"


@pytest.mark.parametrize("text", ['Ann said "yes"', "Ann\\Bob", "Ann\nBob"])
def test_what_json_writes_in_another_way_is_not_copied(text: str) -> None:
    further = SourceText(text.encode()).going_on(b"An", quoted=True)
    assert further is not None
    assert not set(further.text.decode()) & set('"\\\n')
