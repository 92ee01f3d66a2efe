"""How well probabilities tell what is right: a reliability table and its usual figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Judged:
    """A value that was given a probability, and whether it was right."""

    confidence: float
    right: bool


@dataclass(frozen=True)
class Bin:
    """The values with a confidence from `low` to `high`: how many, their mean confidence, the share that is right."""

    low: float
    high: float
    count: int
    confidence: float
    right: float


def bins(values: Sequence[Judged], count: int = 10) -> list[Bin]:
    """Bins of equal width, those without a value left out; 1.0 belongs to the last one."""
    out = []
    for place in range(count):
        inside = [each for each in values if min(int(each.confidence * count), count - 1) == place]
        if inside:
            mean = sum(each.confidence for each in inside) / len(inside)
            out.append(Bin(place / count, (place + 1) / count, len(inside), mean, accuracy(inside)))
    return out


def accuracy(values: Sequence[Judged]) -> float:
    """The share that is right."""
    return sum(each.right for each in values) / len(values)


def calibration_error(values: Sequence[Judged], count: int = 10) -> float:
    """Expected calibration error: how far confidence and accuracy of a bin are apart, weighted by its size (Naeini et
    al., 2015)."""
    return sum(each.count * abs(each.confidence - each.right) for each in bins(values, count)) / len(values)


def brier(values: Sequence[Judged]) -> float:
    """The mean squared distance of confidence and outcome (Brier, 1950); 0.25 is what a constant 0.5 has."""
    return sum((each.confidence - each.right) ** 2 for each in values) / len(values)


def ranking(values: Sequence[Judged]) -> float | None:
    """The chance that a right value has more confidence than a wrong one, equal ones counting half (the area under the
    ROC curve); None where all are right or all are wrong."""
    wrong = sum(not each.right for each in values)
    right = len(values) - wrong
    if not wrong or not right:
        return None
    below = won = 0.0
    for _, group in groupby(sorted(values, key=lambda each: each.confidence), key=lambda each: each.confidence):
        equal = list(group)
        losers = sum(not each.right for each in equal)
        won += (len(equal) - losers) * (below + losers / 2)
        below += losers
    return won / (wrong * right)
