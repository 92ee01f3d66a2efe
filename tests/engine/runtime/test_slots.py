"""Which rows belong to whom, what is held, and what makes way: the book-keeping alone, then the tensors behind it."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlocal.engine.runtime import slots as slots_module
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slot_cache import SlotCache
from chatlocal.engine.runtime.slot_runner import SlotRunner
from chatlocal.engine.runtime.slots import Rectangle, Slots, common_prefix
from tests.engine.runtime.running import prompt
from tests.tiny import tiny_model

MODEL = tiny_model()


def sequence(ids: Iterable[int]) -> Sequence:
    return Sequence(Request(tuple(ids)))


def read(slots: Slots, one: Sequence, count: int | None = None) -> Sequence:
    """Read so many of its first ids, all if not said."""
    slots.grow(count or len(one.ids))
    one.cached = count or len(one.ids)
    slots.wrote(one, one.cached)
    return one


def started(slots: Slots, ids: Iterable[int], count: int | None = None) -> Sequence:
    one = sequence(ids)
    slots.start(one)
    return read(slots, one, count)


def left(slots: Slots, ids: Iterable[int]) -> int:
    """A sequence that came, read and went; gives its row."""
    return slots.release(started(slots, ids), keep=True)[0]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Slots:
    """Room for 40 positions, three running sequences, columns added one by one."""
    monkeypatch.setattr(slots_module, "_COLUMN_STEP", 1)
    slots = Slots()
    slots.allot(40, 3, reuse=True)
    return slots


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_common_prefix(one: list[int], other: list[int]) -> None:
    length = common_prefix(one, other)
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]


def test_each_has_a_row_of_its_own() -> None:
    slots = Slots()
    running = [started(slots, prompt(5, seed)) for seed in range(5)]
    assert sorted(slots.row(one) for one in running) == [0, 1, 2, 3, 4]
    assert all(one in slots for one in running)
    slots.release(running[2], keep=False)
    assert running[2] not in slots
    assert slots.row(started(slots, prompt(5, 9))) == 2


def test_nothing_is_shared_of_what_is_not_read() -> None:
    slots = Slots()
    started(slots, range(10), count=4)
    follower = sequence(range(10))
    start = slots.start(follower)
    assert (start.length, follower.cached) == (4, 4)
    assert start.source != start.row


def test_the_last_id_is_always_left_to_read() -> None:
    slots = Slots()
    left(slots, range(10))
    assert slots.shared(list(range(10))) == 9
    assert slots.start(sequence(range(10))).length == 9


def test_what_goes_on_takes_the_row_over() -> None:
    slots = Slots()
    row = left(slots, range(10))
    start = slots.start(sequence(range(14)))
    assert (start.row, start.source, start.length) == (row, row, 10)
    assert slots.held == 0


def test_what_branches_off_leaves_the_row_to_others() -> None:
    slots = Slots()
    row = left(slots, range(100))
    start = slots.start(sequence([*range(50), *range(200, 230)]))
    assert (start.source, start.length) == (row, 50)
    assert start.row != row
    assert slots.shared([*range(100), 1]) == 100


def test_the_longest_beginning_is_found_among_many() -> None:
    slots = Slots()
    left(slots, [1, 2, 3])
    best = left(slots, [1, 2, 3, 4, 5, 90, 91])
    left(slots, [1, 2, 9, 9, 9, 9, 9, 9])
    started(slots, [1, 2, 3, 4])
    start = slots.start(sequence([1, 2, 3, 4, 5, 6]))
    assert (start.source, start.length) == (best, 5)


def test_turned_off_it_holds_and_shares_nothing() -> None:
    slots = Slots()
    slots.allot(1000, 4, reuse=False)
    left(slots, range(10))
    started(slots, range(10))
    assert slots.held == 0
    assert slots.start(sequence(range(10))).length == 0


def test_what_is_not_kept_is_not_shared() -> None:
    slots = Slots()
    one = started(slots, range(10))
    slots.wrote(one, 17)  # ids of a draft, of which none was kept
    row = slots.row(one)
    assert slots.release(one, keep=False) == (row, 17)
    assert slots.empty
    assert slots.shared(list(range(20))) == 0


def test_one_row_holds_what_several_share() -> None:
    slots = Slots()
    running = [started(slots, range(length)) for length in (5, 9, 7)]
    for one in running:
        slots.release(one, keep=True)
    assert slots.held == 1
    assert slots.shared(list(range(20))) == 9


def test_the_least_recently_used_row_makes_way(small: Slots) -> None:
    for first in (100, 200, 300):
        left(small, range(first, first + 10))
    assert small.held == 3
    assert small.shared([*range(100, 110), 0]) == 10
    small.start(sequence([*range(100, 105), 1, 2]))  # uses the first one, and takes the fourth row
    small.start(sequence(range(400, 410)))
    assert small.shared([*range(100, 110), 0]) == 10
    assert small.shared([*range(200, 210), 0]) == 0


def test_a_row_that_has_to_make_way_for_its_heir_becomes_its_row(small: Slots) -> None:
    row = left(small, range(30))
    start = small.start(sequence([*range(20), 77]))  # two rows of 20 and more would not fit
    assert (start.row, start.source, start.length) == (row, row, 20)


def test_held_rows_make_way_before_a_running_one_is_short(small: Slots) -> None:
    left(small, range(100, 120))
    one = started(small, range(20))
    assert small.held == 1
    read(small, one)
    one.ids += range(20)
    read(small, one, 40)
    assert small.held == 0
    assert small.columns >= 40
    assert small.rows * small.columns <= 40


def test_no_room_is_an_error_and_fits_says_so_before(small: Slots) -> None:
    started(small, range(15))
    started(small, range(100, 115))
    assert not small.fits([15, 15, 15])
    with pytest.raises(MemoryError, match="3 sequences of up to 15 positions"):
        small.start(sequence(range(200, 215)))
    assert small.fits([20, 20])
    assert not small.fits([21, 5])
    small.grow(20)
    with pytest.raises(MemoryError):
        small.grow(21)


def test_a_narrower_rectangle_makes_room_for_another_row(small: Slots) -> None:
    """What was wide for one that has ended is not in the way of three short ones."""
    small.release(started(small, range(38)), keep=False)
    for first in (100, 200, 300):
        started(small, range(first, first + 12))
    assert small.rows * small.columns <= 40


def test_no_more_are_held_than_can_be_of_use() -> None:
    slots = Slots()
    slots.allot(10**6, 2, reuse=True)
    for seed in range(40):
        left(slots, prompt(20, seed))
    assert slots.held == slots_module.MOST_HELD
    assert slots.shared([*prompt(20, 39), 1]) == 20
    assert slots.shared([*prompt(20, 0), 1]) < 20


def test_forgetting_leaves_what_runs() -> None:
    slots = Slots()
    left(slots, prompt(30))
    one = started(slots, prompt(20, 1))
    rectangle = slots.forget()
    assert rectangle == Rectangle(1, 20, ((rectangle.kept[0][0], 0, 20),))
    assert slots.row(one) == 0
    assert slots.forget() is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 60), st.booleans())
def test_the_rectangle_stays_within_its_limit_and_says_the_truth(seed: int, positions: int, reuse: bool) -> None:
    """Random traffic, with a model of the cache beside it: which id was written where."""
    chosen = random.Random(seed)
    slots = Slots()
    slots.allot(positions, 3, reuse=reuse)
    cache: dict[tuple[int, int], int] = {}
    running: list[Sequence] = []

    def follow(rectangle: Rectangle | None) -> None:
        if rectangle is None:
            return
        assert rectangle.rows * rectangle.columns <= positions
        before = dict(cache)
        cache.clear()
        for old, new, length in rectangle.kept:
            assert length <= rectangle.columns
            assert new < rectangle.rows
            cache.update({(new, column): before[old, column] for column in range(length)})

    for _ in range(60):
        lengths = [len(one.ids) for one in running]
        what = chosen.random()
        if what < 0.4 and len(running) < 3:
            ids = [chosen.randrange(2) for _ in range(chosen.randrange(1, 12))]
            if not slots.fits([*lengths, len(ids)]):
                continue
            running.append(new := sequence(ids))
            start = slots.start(new)
            assert start.length == new.cached < len(ids)
            follow(start.rectangle)
            for column in range(start.length):
                cache[start.row, column] = cache[start.source, column]
        elif what < 0.75 and running:
            one = chosen.choice(running)
            if len(one.ids) == one.cached:
                one.ids.append(chosen.randrange(2))
            lengths = [len(other.ids) for other in running]
            if not slots.fits(lengths):
                one.ids.pop()
                continue
            follow(slots.grow(len(one.ids)))
            for column in range(one.cached, len(one.ids)):
                cache[slots.row(one), column] = one.ids[column]
            one.cached = len(one.ids)
            slots.wrote(one, one.cached)
        elif what < 0.85 and slots.rows > 1:
            first, second = chosen.sample(range(slots.rows), 2)
            length = slots.swap(first, second)
            for column in range(length):
                here, there = cache.pop((first, column), None), cache.pop((second, column), None)
                if here is not None:
                    cache[second, column] = here
                if there is not None:
                    cache[first, column] = there
        elif running:
            slots.release(running.pop(chosen.randrange(len(running))), keep=chosen.random() < 0.8)
        for one in running:
            row = slots.row(one)
            assert [cache[row, column] for column in range(one.cached)] == one.ids[: one.cached]
        assert len({slots.row(one) for one in running}) == len(running)
        assert slots.rows * slots.columns <= positions


# the tensors


def test_zeros_and_what_is_kept() -> None:
    cache = SlotCache(2, torch.device("cpu"))
    cache.reshape(Rectangle(3, 5, ()))
    cache.place(1, torch.tensor([[0, 1], [3, cache.beyond]]), 4)
    states = torch.arange(1.0, 1 + 2 * 2 * 2 * 3).view(2, 2, 2, 3)  # [batch, heads, new, head_dim]
    for layer in cache.layers:
        keys, values = layer.update(states, states + 100)
        assert keys.shape == values.shape == (2, 2, 4, 3)
        assert torch.equal(keys[0, :, :2], states[0])
        assert torch.equal(keys[1, :, 3], states[1, :, 0])
        assert keys[1, :, :3].abs().sum() == 0  # what goes beyond is not seen
    assert cache.position_bytes == 2 * 2 * (2 * 3) * 4  # layers, keys and values, heads x head_dim, float32
    cache.reshape(Rectangle(2, 9, ((1, 0, 2), (2, 1, 4))))
    cache.place(0, torch.tensor([[8], [8]]), 9)
    keys, values = cache.layers[1].update(states[:, :, :1], states[:, :, :1])
    assert torch.equal(keys[0, :, :2], states[0])
    assert torch.equal(values[1, :, 3], states[1, :, 0] + 100)
    assert keys[0, :, 2:8].abs().sum() == 0


def test_a_size_that_cannot_be_had_loses_the_cache_and_no_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SlotRunner(MODEL, 2)
    one = sequence(prompt(20))
    whole = runner.forward([(one, 20)])

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(SlotCache, "reshape", fail)
        with pytest.raises(torch.OutOfMemoryError):
            runner.start(sequence(prompt(600)))
    assert one.cached == 0
    assert torch.allclose(runner.forward([(one, 20)]), whole, atol=1e-5)


def test_one_forward_takes_rows_in_any_order() -> None:
    runner = SlotRunner(MODEL, 2)
    ones = [sequence(prompt(6 + row, row)) for row in range(5)]
    alone = [SlotRunner(MODEL, 2).forward([(one, one.pending)]) for one in ones]
    for one in ones:
        one.cached = 0
        runner.forward([(one, 3)])
    order = [3, 0, 4]
    together = runner.forward([(ones[row], ones[row].pending) for row in order])
    for place, row in enumerate(order):
        assert torch.allclose(together[place], alone[row][0], atol=1e-4)
    # Those between them were moved and have lost nothing.
    rest = runner.forward([(ones[row], ones[row].pending) for row in (2, 1)])
    assert torch.allclose(rest[0], alone[2][0], atol=1e-4)
    assert torch.allclose(rest[1], alone[1][0], atol=1e-4)
