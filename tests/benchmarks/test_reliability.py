"""The figures of a reliability table, against values worked out by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAID = [(0.95, True), (1.0, True), (0.9, False), (0.15, True), (0.1, False)]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("reliability")


@pytest.fixture
def values(figures: Any) -> Any:
    return [figures.Judged(*each) for each in SAID]


def test_bins(figures: Any, values: Any) -> None:
    low, high = figures.bins(values)
    assert (low.low, low.high, low.count, low.confidence, low.right) == (0.1, 0.2, 2, 0.125, 0.5)
    assert (high.low, high.high, high.count) == (0.9, 1.0, 3)
    assert high.confidence == pytest.approx(0.95)
    assert high.right == pytest.approx(2 / 3)


def test_calibration_error(figures: Any, values: Any) -> None:
    # 2 * |0.125 - 0.5| and 3 * |0.95 - 2/3|, over 5.
    assert figures.calibration_error(values) == pytest.approx((0.75 + 0.85) / 5)


def test_brier(figures: Any, values: Any) -> None:
    assert figures.brier(values) == pytest.approx((0.05**2 + 0 + 0.9**2 + 0.85**2 + 0.1**2) / 5)


def test_ranking(figures: Any, values: Any) -> None:
    # Of six pairs of a right and a wrong value, 0.15 against 0.9 alone is the wrong way round.
    assert figures.ranking(values) == pytest.approx(5 / 6)
    assert figures.ranking([figures.Judged(0.5, True), figures.Judged(0.5, False)]) == 0.5
    assert figures.ranking([figures.Judged(0.5, True)]) is None
