"""How benchmarks/calibration.py decides what is right, and what its tables say."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from chatlocal.extractors.results import Field, Record

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def calibration(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("calibration")


def record(**values: Any) -> Record:
    return Record(values, values, "record", tuple(Field(f"/{name}", value) for name, value in values.items()))


def test_the_right_values_for_a_place(calibration: Any) -> None:
    right = {"a": {"b": [{"c": 1}]}, "tags": ["x", "y"]}
    assert calibration.values_at(right, ["a", "b", "0", "c"]) == [1]
    assert calibration.values_at(right, ["a", "b", "1", "c"]) == [None]
    assert calibration.values_at(right, ["tags", "5"]) == ["x", "y"]
    assert calibration.values_at(right, ["absent"]) == [None]


PAIRS = [(2, 2.0, True), (1, True, False), ("1", 1, False), (None, None, True)]


@pytest.mark.parametrize(("one", "other", "same"), PAIRS)
def test_values_are_equal_as_json(calibration: Any, one: Any, other: Any, same: bool) -> None:
    assert calibration.same(one, other) is same


def test_each_record_has_the_right_one_with_which_it_shares_the_most(calibration: Any) -> None:
    rights = [{"name": "Ann", "city": "Paris"}, {"name": "Bob", "city": "Paris"}]
    found = [record(name="Cid", city="Oslo"), record(name="Ann", city="Paris"), record(name="Bob", city="Rome")]
    assert calibration.paired(found, rights) == [None, *rights]


def test_the_tables(calibration: Any) -> None:
    fields = [("string", 0.95, True, False), ("string", 0.2, False, False), ("boolean", 0.6, False, True)]
    keys = ("kind", "confidence", "right", "surplus")
    printed = calibration.table({"model": "m", "fields": [dict(zip(keys, each, strict=True)) for each in fields]})
    assert "| 0.2 to 0.3 | 1 | 0.20 | 0% |" in printed
    assert "| 0.9 to 1.0 | 1 | 0.95 | 100% |" in printed
    assert "| all | 3 | 33% | 0.58 | 0.28 | 0.13 | 1.00 |" in printed
    assert "| all in records that are there | 2 | 50% |" in printed
    assert "| 0.5 | 67% | 50% |" in printed
