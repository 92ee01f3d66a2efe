"""How much of a prompt is read between two decoding steps, on machines whose steps cost what a formula says."""

from __future__ import annotations

import random

import pytest

from chatlocal.engine.runtime import pacing
from chatlocal.engine.runtime.pacing import Pace


class Machine:
    """Seconds of a step: `decode` for decoding, `forward` more for a forward of prompts and `each` for each id."""

    def __init__(self, decode: float, forward: float, each: float, noise: float = 0.0) -> None:
        self.decode, self.forward, self.each = decode, forward, each
        self.noise = random.Random(0), noise

    def seconds(self, read: int) -> float:
        chosen, noise = self.noise
        whole = self.decode + (self.forward + self.each * read if read else 0.0)
        return whole * (1 + chosen.uniform(-noise, noise))


def gaps(pace: Pace, machine: Machine, prompt: int, streams: int = 8) -> list[float]:
    """What each step takes, in decoding steps, while a prompt of so many ids is read beside streams."""
    for _ in range(20):
        pace.observe(decoding=streams, read=0, seconds=machine.seconds(0))
    taken = []
    while prompt > 0:
        read = min(prompt, pace.ids(reading=1, decoding=streams))
        prompt -= read
        seconds = machine.seconds(read)
        pace.observe(decoding=streams, read=read, seconds=seconds)
        taken.append(seconds / machine.decode)
    return taken


def warm(machine: Machine) -> Pace:
    """One that has seen a prompt beside streams before."""
    pace = Pace()
    gaps(pace, machine, 500)
    return pace


@pytest.mark.parametrize(
    ("machine", "limit"),
    [
        (Machine(0.060, 0.0, 0.0015), 2.05),  # prompts share the forward
        (Machine(0.060, 0.010, 0.0015), 2.05),
        (Machine(0.060, 0.050, 0.0012), 2.75),  # another forward alone takes nearly as long as decoding
        (Machine(0.015, 0.0, 0.00001), 2.05),
        (Machine(0.060, 0.0, 0.010), 2.75),  # reading an id takes a sixth of a step
    ],
)
def test_a_long_prompt_leaves_the_streams_short_gaps(machine: Machine, limit: float) -> None:
    steps = gaps(warm(machine), machine, 2000)
    assert max(steps) <= limit
    assert len(steps) <= 2000 / pacing._FEWEST


def test_measurements_that_scatter_are_borne() -> None:
    machine = Machine(0.060, 0.020, 0.0015, noise=0.2)
    steps = sorted(gaps(warm(machine), machine, 20_000))
    assert steps[len(steps) // 2] <= 2.5
    assert steps[-1] <= 3.5


def test_the_time_there_is_gets_used() -> None:
    """A machine that reads fast reads a prompt in few steps."""
    machine = Machine(0.060, 0.0, 0.0001)
    assert pacing._MOST >= warm(machine).ids(reading=1, decoding=8) >= 500


def test_a_lucky_step_among_slow_ones_lets_nobody_wait_for_long() -> None:
    pace = Pace()
    for _ in range(31):
        pace.observe(decoding=8, read=0, seconds=0.020)
    # A program that ran beside a few short readings makes a longer one look nearly free.
    for read, seconds in [(30, 0.047), (62, 0.049)] * 9:
        pace.observe(decoding=8, read=read, seconds=seconds)
    assert pace.ids(reading=1, decoding=8) <= 75


def test_nothing_is_known_at_first() -> None:
    assert Pace().ids(reading=1, decoding=8) == pacing._FIRST


def test_a_machine_that_reads_slowly_still_reads() -> None:
    machine = Machine(0.010, 0.5, 0.1)
    assert warm(machine).ids(reading=1, decoding=8) == pacing._FEWEST


def test_where_most_wait_for_their_first_id_the_streams_wait_for_them() -> None:
    pace = warm(Machine(0.060, 0.0, 0.0015))
    few, many = pace.ids(reading=1, decoding=4), pace.ids(reading=12, decoding=4)
    assert many == pytest.approx(3 * few, rel=0.1)


def test_one_slow_step_does_not_change_the_pace_much() -> None:
    machine = Machine(0.060, 0.0, 0.0015)
    pace = warm(machine)
    before = pace.ids(reading=1, decoding=8)
    pace.observe(decoding=8, read=before, seconds=30.0)
    assert pace.ids(reading=1, decoding=8) > before / 2
