"""The growing text that readers read from."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.source import Reading, Source

_T = TypeVar("_T")


def _until(pieces: list[str], marks: tuple[str, ...]) -> tuple[list[str], str | None, str]:
    """What text_until gives for each piece and in the end, the mark that it finds, and what stays unread."""
    source = Source()
    given: list[str] = []
    found = "not yet"
    reading = source.text_until(marks, given.append)
    steps = []
    for piece in [*pieces, None]:
        source.append(piece) if piece is not None else source.end()
        try:
            next(reading)
        except StopIteration as done:
            found = done.value
            steps.append("".join(given))
            break
        steps.append("".join(given))
    return steps, found, source.waiting


def test_text_goes_out_up_to_what_may_become_a_mark() -> None:
    steps, found, rest = _until(["abc<", "ma", "x<mark", ">y"], ("<mark>",))
    assert steps == ["abc", "abc", "abc<max", "abc<max"]
    assert (found, rest) == ("<mark>", "<mark>y")


def test_the_end_gives_what_was_held() -> None:
    assert _until(["abc<ma"], ("<mark>",)) == (["abc", "abc<ma"], None, "")


def test_the_longer_of_two_marks_at_one_place() -> None:
    assert _until(["a[T", "] b"], ("[T", "[T]"))[1:] == ("[T]", "[T] b")
    assert _until(["a[T", "x b"], ("[T", "[T]"))[1:] == ("[T", "[Tx b")
    assert _until(["a[T"], ("[T", "[T]"))[1:] == ("[T", "[T")


@given(st.text("abc<>", max_size=12), st.lists(st.text("abc<>", min_size=1, max_size=4), min_size=1), st.data())
def test_what_is_found_does_not_depend_on_the_pieces(text: str, marks: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    steps, found, _ = _until([text[:cut], text[cut:]], tuple(marks))
    place = min((text.find(mark) for mark in marks if mark in text), default=len(text))
    assert steps[-1] == text[:place]
    assert found == max((mark for mark in marks if text.startswith(mark, place)), key=len, default=None)


def test_what_is_kept_can_be_had_or_unread() -> None:
    source = Source()
    source.append("abcdef")
    source.take(1)
    source.keep()
    source.take(2)
    source.keep()
    source.take(1)
    source.append("gh")
    assert source.kept() == "d"
    source.rewind()
    assert source.waiting == "bcdefgh"


@pytest.mark.parametrize(
    ("text", "given", "mark"),
    [
        ("a</s>", "a", None),
        ("a</s>\n</s> ", "a", None),
        ("a</s>b", "a</s>b", None),
        ("a</s> </s>b</s>", "a</s> </s>b", None),
        ("a</s>[X]b", "a</s>", "[X]"),
    ],
)
def test_end_marks_are_left_out_at_the_end_only(text: str, given: str, mark: str | None) -> None:
    source = Source()
    source.append(text)
    source.end()
    pieces: list[str] = []
    assert _result(read_text(source, pieces.append, ("[X]",), ("</s>",))) == mark
    assert "".join(pieces) == given


def _result(reading: Reading[_T]) -> _T:
    with pytest.raises(StopIteration) as done:
        next(reading)
    value: _T = done.value.value
    return value
