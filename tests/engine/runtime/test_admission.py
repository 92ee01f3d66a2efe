"""Who is let in, who waits, who is refused, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import BudgetTooSmall, EngineBusy, UnsupportedInput
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import cache_budget, waiting_queue
from chatlocal.engine.runtime.backend import Done, Request
from chatlocal.engine.runtime.pacing import Pace
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.torch_backend import TorchBackend
from chatlocal.engine.runtime.waiting_queue import WaitingQueue
from tests.engine.runtime.running import (
    generated,
    ids_of,
    prompt,
    read_in_pieces,
    request,
    run_together,
    tiny_backend,
    wait_for,
)
from tests.tiny import tiny_model, tiny_tokenizer

MODEL = tiny_model(max_position_embeddings=4096)
CPU = torch.device("cpu")


# the budget


def budget(cache_tokens: Any, position_bytes: int = 1000, most: int = 10**9) -> int:
    return cache_budget.positions(cache_tokens, position_bytes=position_bytes, device=CPU, most=most)


def test_a_number_is_a_number_and_a_share_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_budget, "free_bytes", lambda device: 10_000_000)
    assert budget(4096) == 4096
    assert budget(0.25) == 2500
    assert budget(1.0) == 10_000
    assert budget(None) == 5000
    assert budget(4096, most=100) == budget(0.25, most=100) == 100
    assert budget(None, position_bytes=0, most=77) == 77
    assert budget(0.5, position_bytes=10**9) == 1


@pytest.mark.parametrize("wrong", [0, -1, 0.0, 1.5, -0.5, True, "much", float("nan")])
def test_what_is_neither_is_refused(wrong: Any) -> None:
    with pytest.raises(UnsupportedInput, match="cache_tokens"):
        budget(wrong)


def test_the_free_memory_is_some_of_what_the_machine_has() -> None:
    assert 10**6 < cache_budget.free_bytes(CPU) < 2**50


def test_a_containers_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_budget, "_group_bytes", lambda: 12345)
    assert cache_budget.free_bytes(CPU) == 12345


def test_describe_tells_the_budget() -> None:
    with tiny_backend(MODEL, cache_tokens=5000) as backend:
        assert "5,000 positions" in backend.describe()["cache"]


# what can never fit


def test_a_prompt_that_never_fits_is_refused_with_the_numbers() -> None:
    with tiny_backend(MODEL, cache_tokens=100) as backend:
        with pytest.raises(UnsupportedInput, match=r"needs 101 positions and the cache has 100.*cache_tokens"):
            backend.submit(request(prompt(101)))
        with pytest.raises(UnsupportedInput, match="needs 104 positions"):
            backend.score(prompt(99), [(1, 2, 3, 4, 5, 6)])
        assert backend.stats()["forwards"] == backend.stats()["waiting"] == 0
        assert ids_of(backend.submit(request(prompt(100), new=1))) == generated(MODEL, prompt(100), 1)


@pytest.mark.parametrize("limit", [500, None])
def test_an_answer_that_fills_the_cache_ends_there(limit: int | None) -> None:
    with tiny_backend(MODEL, cache_tokens=100) as backend:
        events = list(backend.submit(Request(prompt(80), Sampling(max_tokens=limit))))
        assert events[-1] == Done("length")
        assert ids_of(events) == generated(MODEL, prompt(80), 21)


def test_a_structured_answer_knows_the_room_it_has() -> None:
    spec = constraints.choice(["0123456789"])
    with tiny_backend(MODEL, cache_tokens=40) as backend:
        with pytest.raises(BudgetTooSmall, match="room for 3"):
            backend.submit(Request(prompt(38), Sampling(max_tokens=50), frozenset({2}), spec))
        ids = ids_of(backend.submit(Request(prompt(20), Sampling(max_tokens=50), frozenset({2}), spec)))
        assert tiny_tokenizer().decode(ids) == "0123456789"


# who waits


def test_a_request_waits_for_room_in_the_cache_and_is_then_let_in() -> None:
    with tiny_backend(MODEL, cache_tokens=1000) as backend:
        running = backend.submit(request(prompt(600), new=300))
        next(running)
        other = backend.submit(request(prompt(500, seed=1), new=5))
        next(running)
        assert (backend.stats()["running"], backend.stats()["waiting"]) == (1, 1)
        running.close()
        assert ids_of(other) == generated(MODEL, prompt(500, seed=1), 5)
        assert backend.stats()["preempted"] == 0


def test_too_many_waiting_are_refused_with_the_number() -> None:
    with tiny_backend(MODEL, max_batch=2, max_waiting=3) as backend:
        running = [backend.submit(request(prompt(5, row), new=3000)) for row in range(2)]
        for stream in running:
            next(stream)
        waiting = [backend.submit(request(prompt(6, row), new=3)) for row in range(3)]
        for _ in range(2):
            with pytest.raises(EngineBusy, match=r"3 requests wait already.*max_waiting"):
                backend.submit(request(prompt(7)))
        with pytest.raises(EngineBusy):
            backend.score(prompt(7), [(1,)])
        waiting[0].close()
        wait_for(lambda: backend.stats()["waiting"] == 2, "there is a place in the queue")
        waiting[0] = backend.submit(request(prompt(6), new=3))
        for stream in running:
            stream.close()
        assert [ids_of(stream) for stream in waiting] == [generated(MODEL, prompt(6, row), 3) for row in range(3)]


def test_with_no_waiting_at_all_those_that_run_at_once_are_let_in() -> None:
    with tiny_backend(MODEL, max_batch=3, max_waiting=0) as backend:
        running = [backend.submit(request(prompt(5, row), new=3000)) for row in range(3)]
        with pytest.raises(EngineBusy, match="max_waiting"):
            backend.submit(request(prompt(5)))
        for stream in running:
            next(stream)
            stream.close()
        wait_for(lambda: backend.stats()["running"] == 0, "all are gone")
        assert len(ids_of(backend.submit(request(prompt(5), new=4)))) == 4


def test_a_queue_shorter_than_none_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match="max_waiting"):
        TorchBackend(MODEL, tiny_tokenizer(), max_waiting=-1)


def test_the_engine_hands_its_options_on() -> None:
    with Engine(MODEL, tiny_tokenizer(), cache_tokens=321, max_waiting=0, prefix_reuse=False) as engine:
        assert engine.describe()["cache"] == "321 positions; what was read is dropped"
        assert engine.stats()["preempted"] == engine.stats()["cached_prompt_tokens"] == 0


# whose turn it is


def waiting(*priorities: int) -> tuple[WaitingQueue, list[Sequence]]:
    queue = WaitingQueue()
    sequences = []
    for arrival, priority in enumerate(priorities):
        sequence = Sequence(Request((1,), priority=priority))
        sequence.arrival = arrival
        sequences.append(sequence)
        queue.add(sequence)
    return queue, sequences


def taken(queue: WaitingQueue, sequences: list[Sequence]) -> list[int]:
    order = []
    while (first := queue.first()) is not None:
        queue.take(first)
        order.append(sequences.index(first))
    return order


def test_priorities_go_first_and_of_equals_the_oldest() -> None:
    assert taken(*waiting(0, 5, 0, 5, -1)) == [1, 3, 0, 2, 4]


def test_one_that_is_sent_back_is_before_those_that_never_ran() -> None:
    queue, sequences = waiting(0, 0, 0)
    queue.take(sequences[0])
    queue.add(sequences[0])
    assert taken(queue, sequences) == [0, 1, 2]


def test_nobody_is_overtaken_for_ever() -> None:
    queue, (low,) = waiting(-1)
    for arrival in range(1, 1000):
        high = Sequence(Request((1,), priority=9))
        high.arrival = arrival
        queue.add(high)
        first = queue.first()
        assert first is not None
        queue.take(first)
        if first is low:
            break
    assert arrival == waiting_queue._PATIENCE + 1


class Watched:
    """Which sequences each forward reads, by the lengths of their prompts, and how many ids of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: TorchBackend) -> None:
        self.forwards: list[dict[int, int]] = []
        runner = backend._scheduler._runner
        forward = runner.forward

        def watched(work: list[tuple[Sequence, int]]) -> torch.Tensor:
            self.forwards.append({len(one.request.prompt_ids): count for one, count in work})
            return forward(work)

        monkeypatch.setattr(runner, "forward", watched)

    def first_of(self, length: int) -> int:
        return next(place for place, work in enumerate(self.forwards) if length in work)

    def last_of(self, length: int) -> int:
        return max(place for place, work in enumerate(self.forwards) if length in work)


def test_a_short_prompt_does_not_wait_for_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_pieces(monkeypatch, 64, 32)
    with tiny_backend(MODEL) as backend:
        watched = Watched(monkeypatch, backend)
        stream = backend.submit(request(prompt(5), new=3000))
        next(stream)
        long = backend.submit(request(prompt(3000, seed=1), new=1))
        wait_for(lambda: any(3000 in work for work in watched.forwards), "the long one is being read")
        short = backend.submit(request(prompt(20, seed=2), new=1))
        assert ids_of(short) == generated(MODEL, prompt(20, seed=2), 1)
        assert ids_of(long) == generated(MODEL, prompt(3000, seed=1), 1)
        assert watched.last_of(20) < watched.last_of(3000)
        stream.close()


def test_a_long_prompt_does_not_wait_for_ever_for_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_pieces(monkeypatch, 64, 16)
    with tiny_backend(MODEL) as backend:
        stream = backend.submit(request(prompt(5), new=3000))
        next(stream)
        long = backend.submit(request(prompt(500, seed=1), new=1))
        for row in range(60):
            list(backend.submit(request(prompt(20, seed=10 + row), new=1)))
        assert backend.stats()["finished"] >= 60
        assert ids_of(long) == generated(MODEL, prompt(500, seed=1), 1)
        stream.close()


def test_streams_get_an_id_between_any_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_pieces(monkeypatch, 512, 48)
    with tiny_backend(MODEL, drafting=False) as backend:
        watched = Watched(monkeypatch, backend)
        streams = [backend.submit(request(prompt(5 + row, seed=row), new=2000)) for row in range(8)]
        for stream in streams:
            next(stream)
        newcomer = backend.submit(request(prompt(2000, seed=50), new=2))
        assert ids_of(newcomer) == generated(MODEL, prompt(2000, seed=50), 2)
        reading = [place for place, work in enumerate(watched.forwards) if 2000 in work]
        assert max(watched.forwards[place][2000] for place in reading) <= 48
        for place in reading[:-1]:
            together = {**watched.forwards[place], **watched.forwards[place + 1]}
            assert set(range(5, 13)) <= set(together)
        for stream in streams:
            stream.close()


def test_the_pace_is_taken_from_what_steps_take(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    observe = Pace.observe

    def watched(pace: Pace, **what: Any) -> None:
        seen.append(what)
        observe(pace, **what)

    monkeypatch.setattr(Pace, "observe", watched)
    with tiny_backend(MODEL, drafting=False) as backend:
        stream = backend.submit(request(prompt(5), new=3000))
        for _ in range(20):
            next(stream)
        list(backend.submit(request(prompt(300, seed=1), new=1)))
        stream.close()
    assert any(one["read"] and not one["decoding"] for one in seen)
    assert any(one["decoding"] and not one["read"] for one in seen)
    assert sum(one["read"] for one in seen if one["decoding"]) >= 300
    assert all(one["seconds"] > 0 for one in seen)


def test_many_short_and_few_long_prompts_are_not_padded_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: Iterable[int] = [600, 7, 8, 9, 10, 11, 12, 13]
    requests = [request(prompt(length, seed=length), new=3) for length in lengths]
    with tiny_backend(MODEL, drafting=False) as backend:
        watched = Watched(monkeypatch, backend)
        assert run_together(backend, requests) == [generated(MODEL, one.prompt_ids, 3) for one in requests]
        if not backend._scheduler._runner.ragged:
            for work in watched.forwards:
                assert len(work) * max(work.values()) <= 2 * sum(work.values())
