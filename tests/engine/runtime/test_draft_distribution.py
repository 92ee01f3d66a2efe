"""Sampled ids follow the model's distribution whether they were drafted or not: Pearson's chi-squared test.

The exact probabilities come from the model's logits alone. Seeds are fixed, so the outcome is always the same.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request
from tests.engine.runtime.fixed_costs import fix_costs, free
from tests.engine.runtime.running import ids_of, tiny_backend
from tests.tiny import tiny_model, tiny_tokenizer

MODEL = tiny_model(initializer_range=0.08)
ROUNDS = 1500
TEMPERATURE = 0.8
# Each id may be followed by itself or another one, so that what is looked up is right about as often as it is wrong.
ALLOWED = (10, 11, 12)
PROMPT = (10, 11, 10, 10, 12, 11, 10, 11, 12, 10, 11)


def probabilities(length: int) -> dict[tuple[int, ...], float]:
    """The exact probability of every answer of so many of the allowed ids."""
    answers: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for answer, chance in answers.items():
            with torch.inference_mode():
                logits = MODEL(torch.tensor([[*PROMPT, *answer]])).logits[0, -1].double()
            weights = (logits[list(ALLOWED)] / TEMPERATURE).softmax(-1).tolist()
            longer |= {(*answer, id): chance * weight for id, weight in zip(ALLOWED, weights, strict=True)}
        answers = longer
    return answers


def chi_squared(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; outcomes that are expected less than 5 times count as one."""
    total = sum(counts.values())
    often = [answer for answer, chance in expected.items() if chance * total >= 5]
    cells = [(counts[answer], expected[answer] * total) for answer in often]
    rest = total - sum(count for count, _ in cells)
    cells.append((rest, total - sum(mean for _, mean in cells)))
    return sum((count - mean) ** 2 / max(mean, 1e-9) for count, mean in cells), len(cells) - 1


def critical(degrees: int) -> float:
    """The value that chi-squared exceeds once in a thousand times (Wilson and Hilferty's approximation)."""
    return degrees * (1 - 2 / (9 * degrees) + 3.0902 * math.sqrt(2 / (9 * degrees))) ** 3


def spec() -> Any:
    """Any text of three letters, each an id of its own."""
    letters = "".join(tiny_tokenizer().decode([id]) for id in ALLOWED)
    return constraints.regex(f"[{letters}]{{4}}")


@pytest.mark.parametrize("shift", [False, True], ids=["drafts", "a distribution that is not the model's"])
def test_sampled_answers_follow_the_exact_distribution(monkeypatch: pytest.MonkeyPatch, shift: bool) -> None:
    fix_costs(monkeypatch, free)
    expected = probabilities(4)
    assert sum(expected.values()) == pytest.approx(1.0)
    counts: Counter[tuple[int, ...]] = Counter()
    with tiny_backend(MODEL) as backend:
        requests = [
            Request(PROMPT, Sampling(max_tokens=8, temperature=TEMPERATURE, seed=seed), frozenset({2}), spec())
            for seed in range(ROUNDS)
        ]
        for stream in [backend.submit(request) for request in requests]:
            counts[tuple(ids_of(stream))[:4]] += 1
        stats = backend.stats()
    assert stats["accepted"] > ROUNDS / 4
    assert stats["drafted"] - stats["accepted"] > ROUNDS / 4
    if shift:  # the test finds a difference where there is one
        expected = dict(zip(expected, sorted(expected.values()), strict=True))
    statistic, degrees = chi_squared(counts, expected)
    assert degrees > 20
    assert (statistic > critical(degrees)) is shift
