"""Answers that are not quite as they should be: read without an exception, the same in any pieces, nothing lost."""

from __future__ import annotations

import random

import pytest

from tests.engine.toolcalls.answers import LOSSLESS, check, mutated, payload_of, said, written
from tests.engine.toolcalls.reading import events_of, pieces


def _try(rng: random.Random, name: str) -> None:
    raw, names = written(rng, name)
    raw = mutated(rng, raw)
    tools = rng.choice([None, names, names[:1], [], ["other"]])
    try:
        whole = events_of(name, [raw], tools)
        check(whole)
        assert payload_of(raw) - payload_of(said(whole)) == set()
        cuts = [rng.randrange(len(raw) + 1) for _ in range(rng.choice([1, 4]))]
        assert events_of(name, pieces(raw, cuts), tools) == whole
        if rng.random() < 0.2:
            assert events_of(name, list(raw), tools) == whole
    except Exception as error:
        error.add_note(f"{name}, tools {tools}: {raw!r}")
        raise


@pytest.mark.parametrize("name", LOSSLESS)
def test_nothing_is_lost_in_mutated_answers(name: str) -> None:
    rng = random.Random(name)
    for _ in range(130):
        _try(rng, name)


@pytest.mark.evaluate
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_many_mutated_answers() -> None:
    rng = random.Random(0)
    for number in range(20_000):
        _try(rng, LOSSLESS[number % len(LOSSLESS)])
