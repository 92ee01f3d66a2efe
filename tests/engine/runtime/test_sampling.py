"""How an id is chosen, against references that follow each definition to the letter."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import sampling
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.sequence import Sequence


def sequence(prompt_ids: tuple[int, ...] = (0,), **settings: Any) -> Sequence:
    return Sequence(Request(prompt_ids, Sampling(**settings)))


def row(width: int, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    return torch.randn(width, generator=torch.Generator().manual_seed(seed)) * spread


def drawn(logits: torch.Tensor, count: int, **settings: Any) -> Counter[int]:
    """How often each id comes with the seeds 0, 1, 2, ... of one draw each."""
    sequences = [sequence(seed=seed, **settings) for seed in range(count)]
    return Counter(sampling.choose(logits.repeat(count, 1), sequences))


def expected(
    logits: torch.Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """The probabilities of every id, from the definitions: one id at a time, in double precision."""
    weights = {id: math.exp(value / temperature) for id, value in enumerate(logits.double().tolist())}
    best_first = sorted(weights, key=lambda id: -weights[id])
    if top_k:
        best_first = best_first[:top_k]
    total = sum(weights[id] for id in best_first)
    kept, mass = [], 0.0
    for id in best_first:
        if mass >= top_p and kept:
            break
        kept.append(id)
        mass += weights[id] / total
    kept = [id for id in kept if weights[id] >= min_p * weights[best_first[0]]]
    total = sum(weights[id] for id in kept)
    return [weights[id] / total if id in kept else 0.0 for id in range(len(logits))]


DISTRIBUTIONS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"temperature": 1.0, "top_k": 4},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 2.0, "top_k": 1000},
    {"temperature": 1.0, "top_p": 0.7},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 2.0, "top_p": 0.95},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 1.5, "top_k": 8, "top_p": 0.8, "min_p": 0.15},
]


@pytest.mark.parametrize("settings", DISTRIBUTIONS, ids=str)
def test_ids_come_as_often_as_the_definitions_say(settings: dict[str, Any]) -> None:
    logits, count = row(12), 1000
    probabilities = expected(logits, **settings)
    found = drawn(logits, count, **settings)
    assert all(probabilities[id] > 0 for id in found)
    # Chi-square over the ids that should come five times or more; the seeds are fixed, so this does not flicker.
    likely = [id for id, p in enumerate(probabilities) if p * count >= 5]
    distance = sum((found[id] - probabilities[id] * count) ** 2 / (probabilities[id] * count) for id in likely)
    freedom = len(likely) - 1
    assert distance <= freedom + 4 * math.sqrt(2 * freedom) + 1e-9


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 50},
        {"top_k": 500},
        {"top_p": 0.5},
        {"top_p": 0.9},
        {"top_p": 0.999},
        {"top_k": 400, "top_p": 0.97},
        {"top_k": 200, "top_p": 0.97, "min_p": 0.02},
        {"min_p": 0.01},
    ],
    ids=str,
)
@pytest.mark.parametrize("spread", [0.3, 2.0, 8.0])
def test_a_large_vocabulary_keeps_the_same_ids(settings: dict[str, Any], spread: float) -> None:
    """Flat and steep distributions: with and without the need to look past the first few hundred ids."""
    logits = row(3000, seed=1, spread=spread)
    probabilities = expected(logits, 1.0, **settings)
    found = drawn(logits, 120, temperature=1.0, **settings)
    assert all(probabilities[id] > 0 for id in found)
    # The uniform numbers of the seeds are the ranks in the distribution, so the kept set's ends are reached.
    uniforms = [sequence(seed=seed).random.random() for seed in range(120)]
    ordered = "top_k" in settings or "top_p" in settings
    ids = sorted(range(3000), key=lambda id: -float(logits[id])) if ordered else list(range(3000))
    cumulative = torch.tensor([probabilities[id] for id in ids], dtype=torch.float64).cumsum(0)
    places = torch.searchsorted(cumulative, torch.tensor(uniforms, dtype=torch.float64), right=True).clamp(max=2999)
    wanted = Counter(ids[place] for place in places.tolist())
    assert (wanted - found).total() <= 2  # float32 may put a draw on the other side of a boundary


@pytest.mark.parametrize(
    ("settings", "warpers"),
    [
        ({"top_k": 40}, [TopKLogitsWarper(40)]),
        ({"top_p": 0.8}, [TopPLogitsWarper(0.8)]),
        ({"min_p": 0.05}, [MinPLogitsWarper(0.05)]),
        (
            {"top_k": 60, "top_p": 0.9, "min_p": 0.02},
            [TopKLogitsWarper(60), TopPLogitsWarper(0.9), MinPLogitsWarper(0.02)],
        ),
    ],
    ids=["top_k", "top_p", "min_p", "all"],
)
def test_transformers_keeps_the_same_ids(settings: dict[str, Any], warpers: list[Any]) -> None:
    logits = row(200, seed=2)
    warped = LogitsProcessorList([TemperatureLogitsWarper(1.3), *warpers])(torch.tensor([[0]]), logits[None].clone())[0]
    kept = set(warped.isfinite().nonzero()[:, 0].tolist())
    assert {id for id, p in enumerate(expected(logits, 1.3, **settings)) if p > 0} == kept
    assert set(drawn(logits, 400, temperature=1.3, **settings)) <= kept


@pytest.mark.parametrize("temperature", [None, 0, 0.0, 1e-3, 1e-20, 1e-50])
def test_no_temperature_and_hardly_any_are_greedy(temperature: float | None) -> None:
    logits = row(50)
    assert drawn(logits, 20, temperature=temperature, top_p=0.9, top_k=7) == {int(logits.argmax()): 20}
    assert drawn(logits * 1e4, 20, temperature=temperature) == {int(logits.argmax()): 20}


def test_what_a_mask_forbids_never_comes() -> None:
    logits = row(30)
    logits[torch.arange(30) % 3 > 0] = -torch.inf
    for settings in DISTRIBUTIONS:
        assert all(id % 3 == 0 for id in drawn(logits, 40, **settings))


def test_seeds_repeat_and_differ() -> None:
    logits = row(300, spread=0.1).repeat(64, 1)

    def ids(seed: int | None) -> list[int]:
        one = sequence(temperature=1.0, seed=seed)
        return [sampling.choose(logits[:1], [one])[0] for _ in range(20)]

    assert ids(7) == ids(7)
    assert len({tuple(ids(seed)) for seed in range(5)}) == 5
    assert ids(None) != ids(None)


def test_a_row_depends_on_no_other_row() -> None:
    logits = torch.stack([row(300, seed=place) for place in range(len(DISTRIBUTIONS))])
    alone = [
        sampling.choose(logits[[place]], [sequence(seed=place, **settings)])[0]
        for place, settings in enumerate(DISTRIBUTIONS)
    ]
    together = sampling.choose(
        logits, [sequence(seed=place, **settings) for place, settings in enumerate(DISTRIBUTIONS)]
    )
    assert together == alone


# penalties


def penalized(logits: torch.Tensor, prompt_ids: tuple[int, ...], new: list[int], **settings: float) -> torch.Tensor:
    one = sequence(prompt_ids, **settings)
    for id in new:
        sampling.remember(one, id, len(logits), logits.device)
    changed = logits.clone()
    sampling.penalize(changed, one)
    return changed


@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.3, 5.0])
def test_the_repetition_penalty_is_that_of_transformers(penalty: float) -> None:
    logits = row(20)
    reference = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([[3, 4, 4, 9, 11, 9]]), logits[None].clone())[0]
    assert torch.equal(penalized(logits, (3, 4, 4), [9, 11, 9], repetition_penalty=penalty), reference)


@pytest.mark.parametrize(("presence", "frequency"), [(0.5, 0.0), (0.0, 0.3), (1.1, -0.4), (-0.6, 0.2)])
def test_presence_and_frequency_are_those_of_openai(presence: float, frequency: float) -> None:
    """mu[j] - c[j] * frequency - (c[j] > 0) * presence, c counting the ids of the answer."""
    logits, new = row(20), [9, 11, 9, 9]
    counts = Counter(new)
    reference = torch.tensor(
        [float(mu) - counts[id] * frequency - (counts[id] > 0) * presence for id, mu in enumerate(logits)]
    )
    changed = penalized(logits, (3, 9, 4), new, presence_penalty=presence, frequency_penalty=frequency)
    torch.testing.assert_close(changed, reference)


def test_without_penalties_nothing_is_counted() -> None:
    one = sequence(temperature=1.0)
    sampling.remember(one, 3, 10, torch.device("cpu"))
    assert one.counts is None


# reports


def test_a_report_holds_the_best_alternatives() -> None:
    logits = row(20)
    one = Sequence(Request((0,), logprobs=4))
    (reported,) = sampling.logprobs(logits[None], [one])
    assert reported is not None
    report = sampling.report(reported, 7, 4)
    everything = logits.double().log_softmax(-1)
    assert (report.id, report.logprob) == (7, pytest.approx(float(everything[7]), abs=1e-6))
    assert [id for id, _ in report.top] == everything.topk(4).indices.tolist()
    assert [value for _, value in report.top] == pytest.approx(everything.topk(4).values.tolist(), abs=1e-6)
    assert sampling.report(reported, 7, 0).top == ()
    assert len(sampling.report(reported, 7, 100).top) == 20
