"""Prompt lookup against a plain search through the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine.runtime.prompt_lookup import PromptLookup

TEXTS = st.lists(st.integers(0, 3), max_size=14)


def lookup(ids: list[int]) -> PromptLookup:
    made = PromptLookup()
    made.update(ids, 0)
    return made


def searched(ids: list[int], last: list[int], most: int) -> tuple[list[int], int] | None:
    """The longest suffix of `last`, of 2 to 8 ids, that stands in `ids` with something behind it, found latest."""
    for length in range(min(8, len(last)), 1, -1):
        for end in range(len(ids) - 1, length - 1, -1):
            if ids[end - length : end] == last[-length:]:
                behind = ids[end:]
                return [behind[place % len(behind)] for place in range(most)], length
    return None


@given(TEXTS)
def test_it_finds_what_a_search_through_the_text_finds(ids: list[int]) -> None:
    found = lookup(ids).find(ids, 5)
    assert (None if found is None else tuple(found)) == searched(ids, ids, 5)


@given(TEXTS, TEXTS, TEXTS)
def test_a_text_that_was_written_anew_is_known_as_it_is_now(before: list[int], one: list[int], two: list[int]) -> None:
    old, new = [*before, *one], [*before, *two]
    made = lookup(old)
    made.update(new, len(before))
    assert made.find(new, 4) == lookup(new).find(new, 4)


def test_the_longest_match_goes_before_the_most_recent_one() -> None:
    ids = [1, 2, 3, 7, 9, 2, 3, 8, 0, 1, 2, 3]
    assert lookup(ids).find(ids, 1) == ([7], 3)


def test_of_equal_matches_the_most_recent_one_is_followed() -> None:
    ids = [2, 3, 7, 0, 2, 3, 8, 1, 2, 3]
    assert lookup(ids).find(ids, 2) == ([8, 1], 2)


def test_ids_that_are_still_to_be_read_are_part_of_what_is_looked_for() -> None:
    ids = [5, 6, 7, 8, 9, 5]
    assert lookup(ids).find([5, 6], 2) == ([7, 8], 2)


def test_one_id_is_no_match() -> None:
    assert lookup([1, 2, 1]).find([1, 2, 1], 3) is None
    assert lookup([1]).find([1], 3) is None
