"""Short texts of regular expressions, held to Python's own reader of them."""

from __future__ import annotations

import re

import pytest

from chatlocal.engine.constraints.regex_text import shortest_match


@pytest.mark.parametrize("length", [0, 1, 4, 17])
@pytest.mark.parametrize(
    "pattern",
    [
        *("^a*$", "^(ab|c)+$", "b[^a-z]", r"^\w+@\d{2,}$", "^[é红]{2,}x?$", r"^\+?[1-9]\d{1,30}$", "^(?:a|bb*)c$", "x"),
        *(r"^[^\\\"]+!$", r"\x41\u0042?$", "^(?P<name>a{3}){1,9}$", "^a+?b*?$", r"^\S\s\S*$", "^[]a]+$", "^.{0,20}$"),
        *(r"^(\.|\{|\\)*$", "^(a|b){5,}(c|dd)*$", "^(|long enough already)$", "^(x(y|z){0,3}){0,9}$"),
    ],
)
def test_the_text_matches_and_is_long_enough(pattern: str, length: int) -> None:
    text = shortest_match(pattern, length)
    assert text is not None
    assert re.search(pattern, text)
    # Enough where the pattern has texts of that length.
    assert len(text) >= length or pattern == "^(|long enough already)$"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^[A-Z]{2}[0-9]{3}$", "AA000"),
        ("^(yes|no|(may)?be)$", "no"),
        (r"^\d{4}-\d\d$", "0000-00"),
        ("b+", "b"),
        (r"\bword\b", "word"),
        ("^(a|b{3,})$", "a"),
        (r"^\p{Lu}\p{L}+$", "Aa"),
        ("", ""),
    ],
)
def test_it_is_the_shortest(pattern: str, text: str) -> None:
    assert shortest_match(pattern) == text


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", r"\P{L}", "*", "(a", "[z-a]"])
def test_what_is_not_read_has_no_text(pattern: str) -> None:
    assert shortest_match(pattern) is None


def test_more_than_a_pattern_has_is_no_text() -> None:
    assert shortest_match("^[ab]{2,3}$", 3) == "aaa"
    assert shortest_match("^[ab]{2,3}$", 4) is None
    assert shortest_match("[ab]{2,3}$", 4) == "aaaa"
