from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.parse import StopMatcher

# Few letters, so that stops, their beginnings and overlaps are everywhere.
_stops = st.lists(st.text("ab", min_size=1, max_size=5), max_size=5)
_chunks = st.lists(st.text("abc", max_size=4), max_size=12)


def run(stops: list[str], chunks: list[str]) -> tuple[list[str], str, str | None]:
    matcher = StopMatcher(stops)
    released = [matcher.feed(chunk) for chunk in chunks]
    return released, matcher.flush(), matcher.stopped


def reference(stops: list[str], text: str) -> tuple[str, str | None]:
    """The stop that ends first, the longest of those that end there; the text before it."""
    for end in range(1, len(text) + 1):
        here = [stop for stop in stops if text[:end].endswith(stop)]
        if here:
            stop = max(here, key=len)
            return text[: end - len(stop)], stop
    return text, None


@pytest.mark.parametrize(
    ("stops", "chunks", "released"),
    [
        (["five"], ["one, two, th", "ree, fo", "ur, five, six"], ["one, two, th", "ree, fo", "ur, "]),
        (["\n"], ["?", "\n"], ["?", ""]),
        (["DEFGHIJ"], ["ABC", "DEF", "G", "HI", "J", "K"], ["ABC", "", "", "", "", ""]),
        (["own fox"], ["The quick br", "own", " fox"], ["The quick br", "", ""]),
    ],
)
def test_text_before_a_stop_is_released_and_nothing_after_it(
    stops: list[str], chunks: list[str], released: list[str]
) -> None:
    assert run(stops, chunks) == (released, "", stops[0])


def test_text_that_turns_out_to_be_no_stop_is_released_at_once() -> None:
    assert run(["\nUser:"], ["hi\nUse", "d car"]) == (["hi", "\nUsed car"], "", None)


def test_flush_gives_the_beginning_of_a_stop_that_never_came() -> None:
    assert run(["\nUser:"], ["hi\nUs"]) == (["hi"], "\nUs", None)


def test_without_stops_all_text_passes() -> None:
    assert run([], ["a", "", "b"]) == (["a", "", "b"], "", None)


@pytest.mark.parametrize(
    ("stops", "text", "before", "stopped"),
    [
        (["abcd", "bc"], "abcd", "a", "bc"),  # "bc" is complete first
        (["bc", "abc"], "abc", "", "abc"),  # both are complete at once: the longer one
        (["c", "abd"], "abc", "ab", "c"),
    ],
)
def test_of_several_stops_the_first_complete_one_ends_the_text(
    stops: list[str], text: str, before: str, stopped: str
) -> None:
    assert run(stops, [text]) == ([before], "", stopped)


@given(_stops, _chunks)
@example(["aab", "ab"], ["a", "a", "a", "b"])
def test_the_whole_text_alone_decides(stops: list[str], chunks: list[str]) -> None:
    released, rest, stopped = run(stops, chunks)
    assert ("".join(released) + rest, stopped) == reference(stops, "".join(chunks))


@given(_stops, _chunks)
def test_what_is_held_is_the_longest_suffix_that_may_become_a_stop(stops: list[str], chunks: list[str]) -> None:
    matcher = StopMatcher(stops)
    released = fed = ""
    for chunk in chunks:
        released += matcher.feed(chunk)
        fed += chunk
        if matcher.stopped is not None:
            return
        beginnings = [stop[:size] for stop in stops for size in range(1, len(stop))]
        longest = max((len(start) for start in beginnings if fed.endswith(start)), default=0)
        assert released == fed[: len(fed) - longest]


def test_after_a_stop_nothing_comes() -> None:
    matcher = StopMatcher(["x"])
    assert [matcher.feed("axb"), matcher.feed("more"), matcher.flush()] == ["a", "", ""]


def test_work_grows_with_the_text_not_with_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are counted, not seconds: at most one per character and one fallback per character before it."""
    size = 3000
    matcher = StopMatcher(["a" * size + "b", *("a" * length + "c" for length in range(1, 60))])
    reads = 0

    class Counted(list):  # type: ignore[type-arg]
        def __getitem__(self, index: object) -> object:
            nonlocal reads
            reads += 1
            return super().__getitem__(index)  # type: ignore[index]

    monkeypatch.setattr(matcher, "_fallback", Counted(matcher._fallback))
    for _ in range(3 * size):
        matcher.feed("a")
    matcher.feed("x" * size)
    assert reads <= 4 * size + 1


@pytest.mark.parametrize("stops", ["text", [""], ["a", ""]])
def test_stops_without_characters_are_refused(stops: object) -> None:
    with pytest.raises(UnsupportedInput, match="at least one character"):
        StopMatcher(stops)  # type: ignore[arg-type]
