"""Regexes and choices: whole texts, and the automaton below them."""

from __future__ import annotations

import re

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import regex_automaton
from chatlocal.engine.constraints.regex_dialect import rust_pattern
from chatlocal.engine.constraints.regex_size import expanded_size
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema
from tests.engine.constraints.walking import walk
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        (r"\d+(\.\d+)?", ["1", "1.5", "10.25"], ["1.", ".5", "", "1.5.2"]),
        (r"a|ab|abc", ["a", "ab", "abc"], ["", "b", "abcd"]),
        (r"(yes|no)?", ["", "yes", "no"], ["yesno"]),
        (r"^abc$", ["abc"], ["ab", "^abc$"]),
        (r"a\$", ["a$"], ["a"]),
        (r"[🫠-🫶]+", ["🫠", "🫶🫡"], ["🦥", ""]),
        (r"[^\n]{0,200}", ["", "x" * 200, "你好"], ["a\nb", "x" * 201]),
        (r"\w+@\w+\.com", ["a@b.com", "哈利@b.com"], ["a@b", "@b.com"]),
        (r"\s", [" ", "\n", "\x1c"], ["a"]),
    ],
)
@pytest.mark.parametrize("backend", ["outlines", "llguidance"])
def test_whole_texts(pattern, accepted, refused, backend):
    constraint = constraints.compile(constraints.regex(pattern), TOKENIZER, backend=backend)
    assert [text for text in accepted if not constraint.accepts(text)] == []
    assert [text for text in refused if constraint.accepts(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d+(\.\d+)?",
        r"[🫠-🫶]{1,4}",
        r"(a|b)*a(a|b){3}",
        r"\w+@[\w.-]+",
        r"[^\W\d]+\S",
        r"(?i)yes|no",
        r"[^\n]{0,9}",
    ],
)
def test_random_walks_match(pattern):
    constraint = constraints.compile(constraints.regex(pattern), TOKENIZER)
    for seed in range(10):
        text = walk(constraint, TOKENIZER, seed, steps=15)
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "[a&&b]", "a\x00b", "^a|b$"])
def test_what_cannot_be_compiled_is_a_named_error(pattern):
    with pytest.raises(UnsupportedSchema) as caught:
        constraints.compile(constraints.regex(pattern), TOKENIZER, backend="outlines")
    assert caught.value.keyword == "regex"


@pytest.mark.parametrize("pattern", ["(((a{100}){100}){100}){100}", "a{4294967295}"])
def test_a_regex_of_any_size_ends_in_a_named_error(pattern):
    with pytest.raises(UnsupportedSchema) as caught:
        constraints.compile(constraints.regex(pattern), TOKENIZER)
    assert caught.value.keyword == "complexity"


def test_a_regex_with_too_large_an_automaton_goes_to_the_other_backend(monkeypatch):
    monkeypatch.setattr(regex_automaton, "MAX_SECONDS", 0.5)
    pattern = r"(a|b)*a(a|b){17}"  # 2^18 states
    with pytest.raises(UnsupportedSchema, match=r"larger|takes more"):
        constraints.compile(constraints.regex(pattern), TOKENIZER, backend="outlines")
    constraint = constraints.compile(constraints.regex(pattern), TOKENIZER)
    assert constraint.accepts("a" + "b" * 17)
    assert not constraint.accepts("b" * 18)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [("abc", 3), ("(ab){3}c", 7), ("[a-z]{2,5}", 5), (r"\d{4}-\d{2}", 7), ("((a{10}){10}){10}", 1000)],
)
def test_the_size_of_a_regex(pattern, size):
    assert expanded_size(pattern) == size


@pytest.mark.parametrize(
    ("pattern", "written"), [("^a$", "a"), ("^a|b$", "^a|b$"), (r"a\$", r"a\$"), ("^(a|b)$", "(a|b)"), ("^[|]$", "[|]")]
)
def test_anchors_at_the_ends_are_dropped_where_they_bind_the_whole(pattern, written):
    assert rust_pattern(pattern) == written


def test_forced_bytes_of_an_automaton():
    automaton = regex_automaton.regex_automaton(r"abc(d|e)xyz")
    assert automaton.forced(0) == b"abc"


AWKWARD = ["yes", "yes please", "no", "红", "🦥", 'q"uote', "a.b*c", "ends\n"]


def test_choice():
    constraint = constraints.compile(constraints.choice(AWKWARD), TOKENIZER)
    assert [text for text in AWKWARD if not constraint.accepts(text)] == []
    assert [text for text in ["ye", "yes ", "aXbc", "nono", ""] if constraint.accepts(text)] == []
    assert {walk(constraint, TOKENIZER, seed) for seed in range(300)} == set(AWKWARD)


def test_characters_of_several_tokens():
    values = ["龘", "🦥"]
    constraint = constraints.compile(constraints.json_schema({"enum": values}), TOKENIZER)
    assert {walk(constraint, TOKENIZER, seed) for seed in range(10)} == {'"龘"', '"🦥"'}
    choice = constraints.compile(constraints.choice(values), TOKENIZER)
    first, *rest = TOKENIZER.encode("🦥", add_special_tokens=False)
    state = choice.start()
    state.advance(first)
    for id in rest:
        assert state.mask()[id]
        assert state.mask().sum() < 5  # nothing that leaves the choice
        state.advance(id)
    assert state.done


@pytest.mark.parametrize("values", [[], [""], [1], ["a", None]])
def test_a_choice_takes_texts(values):
    with pytest.raises(UnsupportedInput):
        constraints.choice(values)


def test_a_choice_that_is_no_text() -> None:
    with pytest.raises(UnsupportedInput, match="UTF-8"):
        constraints.choice(["\ud800"])
