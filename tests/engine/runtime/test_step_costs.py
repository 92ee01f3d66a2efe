"""Costs of forwards, on a clock of the test's own."""

from __future__ import annotations

import pytest

from chatlocal.engine.runtime.step_costs import StepCosts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def costs(**seconds: float) -> StepCosts:
    made = StepCosts()
    for name, took in seconds.items():
        for _ in range(10):
            made.add(int(name.removeprefix("of_")), took)
    return made


def test_what_was_measured_is_what_is_expected() -> None:
    made = costs(of_1=1.0, of_4=1.5)
    assert made.seconds(1) == 1.0
    assert made.seconds(4) == 1.5


def test_between_two_measured_numbers_costs_lie_between() -> None:
    made = costs(of_1=1.0, of_4=1.6)
    assert made.seconds(2) == pytest.approx(1.2)


def test_what_was_never_measured_is_hoped_to_be_cheap_and_never_free() -> None:
    made = costs(of_1=1.0)
    assert 1.0 < made.seconds(8) < 2.0
    assert made.seconds(16) > made.seconds(8)


def test_a_forward_that_the_machine_held_up_counts_little() -> None:
    made = costs(of_1=1.0)
    made.add(1, 100.0)
    assert made.seconds(1) < 1.5


def test_costs_that_have_changed_are_learned() -> None:
    made = costs(of_1=1.0)
    for _ in range(60):
        made.add(1, 3.0)
    assert made.seconds(1) == pytest.approx(3.0, rel=0.01)


def test_a_forward_is_timed_to_where_its_logits_are_seen_and_once() -> None:
    clock = Clock()
    made = StepCosts(clock)
    made.start(4)
    clock.now = 2.0
    made.done()
    clock.now = 9.0
    made.done()
    assert made.seconds(4) == 2.0


def test_large_numbers_of_ids_share_what_is_known() -> None:
    made = costs(of_100=5.0)
    assert made.seconds(99) == 5.0
