"""What goes wrong in a step, and how requests end before their time."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.constraints import ConstraintState
from chatlocal.engine.errors import BudgetTooSmall, EngineClosed, EngineDied, GenerationTimeout
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import sampling
from chatlocal.engine.runtime.arrivals import arrivals
from chatlocal.engine.runtime.backend import Done, Request, Tokens
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.architectures import architecture
from tests.engine.runtime.running import (
    generated,
    ids_of,
    prompt,
    request,
    run_together,
    scheduler_threads,
    tiny_backend,
    wait_for,
)
from tests.tiny import tiny_model, tiny_tokenizer

MODEL = tiny_model()
ENDLESS = 100_000


@pytest.fixture
def backend() -> Iterator[TorchBackend]:
    with tiny_backend(MODEL, max_batch=4) as backend:
        yield backend


def idle(backend: TorchBackend) -> bool:
    stats = backend.stats()
    return stats["running"] == 0 and stats["waiting"] == 0


def read_to_the_error(stream: Iterator[Any]) -> tuple[list[int], BaseException | None]:
    """The ids before the end, and what went wrong then, which an EngineDied tells of."""
    ids: list[int] = []
    try:
        for event in stream:
            if isinstance(event, Tokens):
                ids += event.ids
    except EngineDied as error:
        return ids, error.__cause__ if str(error.__cause__) in str(error) else error
    except EngineClosed as error:
        return ids, error
    return ids, None


class Failing:
    """Makes the runner of a backend raise at chosen forwards: `when` is asked with the work of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: Callable[[list[Sequence]], bool], backend: TorchBackend):
        self.error = RuntimeError("it went wrong, say")
        runner = backend._scheduler._runner
        forward = runner.forward

        def failing(work: list[tuple[Sequence, int]]) -> torch.Tensor:
            if when([sequence for sequence, _ in work]):
                raise self.error
            return forward(work)

        monkeypatch.setattr(runner, "forward", failing)


# errors in a step


def test_an_error_comes_after_what_was_streamed_before_it(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch, lambda work: work[0].new_tokens == 2, backend)
    ids, error = read_to_the_error(backend.submit(request(prompt(5), new=10)))
    assert ids == generated(MODEL, prompt(5), 2)
    assert error is failing.error
    monkeypatch.undo()
    assert ids_of(backend.submit(request(prompt(5)))) == generated(MODEL, prompt(5))
    assert backend.stats()["failed"] == 1


def test_an_error_reaches_all_in_the_forward_and_those_who_wait_go_on(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(monkeypatch, lambda work: len(work) == 4 and any(one.new_tokens == 3 for one in work), backend)
    streams = [backend.submit(request(prompt(4 + row, row), new=10)) for row in range(6)]
    ends = [read_to_the_error(stream) for stream in streams]
    assert [error for _, error in ends] == [failing.error] * 4 + [None] * 2
    for row, (ids, _) in enumerate(ends):
        whole = generated(MODEL, prompt(4 + row, row), 10)
        assert ids == whole[: len(ids)]
        assert len(ids) == 10 if row >= 4 else len(ids) <= 3
    assert idle(backend)
    assert backend.stats()["failed"] == 4


def test_an_error_while_a_prompt_is_read_leaves_the_running_ones_alone(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = backend.submit(request(prompt(5), new=40))
    beginning = next(running)
    failing = Failing(monkeypatch, lambda work: any(len(one.request.prompt_ids) == 77 for one in work), backend)
    assert read_to_the_error(backend.submit(request(prompt(77)))) == ([], failing.error)
    assert ids_of([beginning, *running]) == generated(MODEL, prompt(5), 40)


def test_one_by_one_an_error_is_one_requests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model = architecture("mistral", sliding_window=8)
    with tiny_backend(model) as backend:
        failing = Failing(monkeypatch, lambda work: len(work[0].request.prompt_ids) == 6, backend)
        ends = [read_to_the_error(s) for s in [backend.submit(request(prompt(5 + row, row))) for row in range(3)]]
        assert [error for _, error in ends] == [None, failing.error, None]
        assert ends[2][0] == generated(model, prompt(7, 2))


def test_an_error_between_forward_and_hand_over_is_not_reported_twice(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two requests has ended in the very step in which the second's report fails."""
    report = sampling.report

    def failing(row: torch.Tensor, chosen: int, alternatives: int) -> Any:
        if alternatives == 7:
            raise RuntimeError("no report")
        return report(row, chosen, alternatives)

    monkeypatch.setattr(sampling, "report", failing)
    both_wait = threading.Event()
    Failing(monkeypatch, lambda work: len(work[0].request.prompt_ids) == 1 and not both_wait.wait(60), backend)
    before = backend.submit(request(prompt(1), new=1))
    first = Request(prompt(6), Sampling(max_tokens=1), logprobs=0)
    second = Request(prompt(6), Sampling(max_tokens=1), logprobs=7)
    events, broken = [backend.submit(one) for one in (first, second)]
    both_wait.set()
    assert list(before)[-1] == list(events)[-1] == Done("length")
    with pytest.raises(RuntimeError, match="no report"):
        list(broken)
    stats = backend.stats()
    assert (stats["finished"], stats["failed"]) == (2, 1)


def test_a_grammar_that_fails_ends_its_own_request_only(backend: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    mask, advance = ConstraintState.mask, ConstraintState.advance
    letter = tiny_tokenizer().convert_tokens_to_ids("a")
    calls: dict[ConstraintState, int] = {}  # of the requests themselves, not of looks ahead

    def failing_mask(state: ConstraintState) -> torch.Tensor:
        calls[state] = calls.get(state, 0) + 1
        if calls[state] == 3 and mask(state)[letter]:
            raise RuntimeError("no mask")
        return mask(state)

    def failing_advance(state: ConstraintState, new: int) -> None:
        advance(state, new)
        if state.done and state in calls:
            raise RuntimeError("no advance")

    monkeypatch.setattr(ConstraintState, "mask", failing_mask)
    monkeypatch.setattr(ConstraintState, "advance", failing_advance)
    ends = frozenset({2})
    plain = backend.submit(request(prompt(5), new=15))
    forced = backend.submit(Request(prompt(6), Sampling(max_tokens=40), ends, constraints.regex("[a-f]{20}")))
    digits = backend.submit(Request(prompt(7), Sampling(max_tokens=15), ends, constraints.regex("[0-9]{5}")))
    ids, error = read_to_the_error(forced)
    assert (len(ids), str(error)) == (2, "no mask")
    ids, error = read_to_the_error(digits)
    assert str(error) == "no advance"
    assert len(tiny_tokenizer().decode(ids)) == 5
    assert ids_of(plain) == generated(MODEL, prompt(5), 15)


def test_a_mask_of_the_wrong_width_ends_its_own_request_only(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConstraintState, "mask", lambda state: torch.ones(7, dtype=torch.bool))
    plain = backend.submit(request(prompt(5)))
    masked = Request(prompt(5), Sampling(max_tokens=9), frozenset({2}), constraints.regex("[0-9]{4}"))
    with pytest.raises(RuntimeError):
        list(backend.submit(masked))
    assert ids_of(plain) == generated(MODEL, prompt(5))


def test_logits_that_are_no_numbers_end_their_request_and_spoil_no_slot() -> None:
    """As float16 overflows: keys, values and logits of one prompt are NaN."""
    model = tiny_model()
    model.model.embed_tokens.register_forward_hook(
        lambda module, ids, output: output.masked_fill((ids[0] == 511).any(-1)[:, None, None], torch.nan)
    )
    with tiny_backend(model) as backend:
        running = backend.submit(request(prompt(50), new=60))
        spoiled = backend.submit(request((*prompt(40), 511), temperature=1.0, seed=1))
        with pytest.raises(EngineDied, match="float32"):
            list(spoiled)
        # These get the spoiled slot, and are shorter than what it held and what they share a forward with.
        later = [backend.submit(request(prompt(2 + row, row))) for row in range(3)]
        assert ids_of(running) == generated(MODEL, prompt(50), 60)
        assert [ids_of(stream) for stream in later] == [generated(MODEL, prompt(2 + row, row)) for row in range(3)]


def test_a_fault_of_the_scheduler_reaches_everybody(backend: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [backend.submit(request(prompt(5, row), new=ENDLESS)) for row in range(6)]
    next(streams[0])
    fault = KeyError("a fault of ours")

    def broken() -> None:
        raise fault

    monkeypatch.setattr(backend._scheduler, "_admit", broken)
    for stream in streams:
        with pytest.raises(EngineDied, match="a fault of ours") as raised:
            list(stream)
        assert raised.value.__cause__ is fault
    with pytest.raises(EngineDied, match="load it again"):
        backend.submit(request(prompt(3)))
    assert backend.closed
    assert idle(backend)
    backend.close()


# cancelling


def test_closing_a_running_request_frees_its_slot_within_one_step(backend: TorchBackend) -> None:
    stream = backend.submit(request(prompt(5), new=ENDLESS))
    next(stream)
    stream.close()
    forwards = backend.stats()["forwards"]
    wait_for(lambda: idle(backend), "the slot is free")
    assert backend.stats()["forwards"] <= forwards + 1
    assert backend.stats()["cancelled"] == 1
    assert list(stream) == []
    assert ids_of(backend.submit(request(prompt(5)))) == generated(MODEL, prompt(5))


def test_closing_a_waiting_request_takes_it_out_of_the_queue(backend: TorchBackend) -> None:
    running = [backend.submit(request(prompt(5, row), new=ENDLESS)) for row in range(4)]
    waiting = [backend.submit(request(prompt(5, row), new=ENDLESS)) for row in range(3)]
    next(running[0])
    wait_for(lambda: backend.stats()["waiting"] == 3, "three wait")
    for stream in waiting:
        stream.close()
    wait_for(lambda: backend.stats()["waiting"] == 0, "none waits")
    assert backend.stats()["running"] == 4
    for stream in running:
        stream.close()
    wait_for(lambda: idle(backend), "nothing runs")


def test_an_abandoned_stream_is_a_closed_one(backend: TorchBackend) -> None:
    stream = backend.submit(request(prompt(5), new=ENDLESS))
    next(stream)
    never_read = backend.submit(request(prompt(6), new=ENDLESS))
    del stream, never_read
    gc.collect()
    wait_for(lambda: idle(backend), "the slots are free")
    assert backend.stats()["cancelled"] == 2


@pytest.mark.parametrize("others", [0, 4])
def test_a_deadline_ends_running_and_waiting_requests(backend: TorchBackend, others: int) -> None:
    busy = [backend.submit(request(prompt(5, row), new=ENDLESS)) for row in range(others)]
    stream = backend.submit(request(prompt(9), new=ENDLESS))
    deadline = time.monotonic() + 0.05
    with pytest.raises(GenerationTimeout, match="time limit"):
        list(arrivals(stream, deadline))
    for one in (stream, *busy):
        one.close()
    wait_for(lambda: idle(backend), "the slots are free")


def test_higher_priorities_start_first(backend: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = backend._scheduler._runner.start

    def watched(sequence: Sequence) -> None:
        started.append(len(sequence.ids))
        start(sequence)

    running = [backend.submit(request(prompt(5, row), new=ENDLESS)) for row in range(4)]
    next(running[3])
    monkeypatch.setattr(backend._scheduler._runner, "start", watched)
    lengths = {11: 0, 12: 5, 13: 0, 14: 5, 15: -1}
    streams = [
        backend.submit(Request(prompt(length), Sampling(max_tokens=3), priority=priority))
        for length, priority in lengths.items()
    ]
    wait_for(lambda: backend.stats()["waiting"] == 5, "five wait")
    running[1].close()
    for stream in streams:
        list(stream)
    assert started == [12, 14, 11, 13, 15]


# closing


def test_closing_fails_what_runs_and_what_waits(backend: TorchBackend) -> None:
    streams = [backend.submit(request(prompt(5, row), new=ENDLESS)) for row in range(6)]
    first = next(streams[0])
    backend.close()
    for row, stream in enumerate(streams):
        ids, error = read_to_the_error(stream)
        assert isinstance(error, EngineClosed)
        if row == 0:
            assert isinstance(first, Tokens)
            ids = [*first.ids, *ids]
        assert ids == generated(MODEL, prompt(5, row), len(ids)) if ids else True
    backend.close()
    with pytest.raises(EngineClosed, match="load it again"):
        backend.submit(request(prompt(3)))


def test_closing_from_many_threads_at_once() -> None:
    before = scheduler_threads()
    with tiny_backend(MODEL) as backend:
        stream = backend.submit(request(prompt(5), new=ENDLESS))
        next(stream)
        closers = [threading.Thread(target=backend.close) for _ in range(8)]
        for closer in closers:
            closer.start()
        with pytest.raises(EngineClosed):
            list(stream)
        for closer in closers:
            closer.join(60)
            assert not closer.is_alive()
        assert scheduler_threads() == before


def test_closing_without_a_request_and_before_any(backend: TorchBackend) -> None:
    backend.close()
    assert backend.closed


def test_submitting_while_others_close_never_hangs() -> None:
    for _ in range(20):
        with tiny_backend(MODEL) as backend:
            ends: list[BaseException | None] = []

            def call(backend: TorchBackend = backend, ends: list[Any] = ends) -> None:
                try:
                    ends.append(read_to_the_error(backend.submit(request(prompt(4), new=ENDLESS)))[1])
                except EngineClosed as error:
                    ends.append(error)

            callers = [threading.Thread(target=call) for _ in range(4)]
            for caller in callers:
                caller.start()
            backend.close()
            for caller in callers:
                caller.join(60)
                assert not caller.is_alive()
            assert [type(end) for end in ends] == [EngineClosed] * 4


def test_a_backend_that_nobody_holds_ends_its_thread() -> None:
    before = set(scheduler_threads())
    backend = TorchBackend(MODEL, tiny_tokenizer())
    ids_of(backend.submit(request(prompt(3))))
    (thread,) = set(scheduler_threads()) - before
    del backend
    gc.collect()
    assert not thread.is_alive()


def test_an_open_stream_holds_its_backend() -> None:
    stream = TorchBackend(MODEL, tiny_tokenizer()).submit(request(prompt(3), new=5))
    gc.collect()
    assert ids_of(stream) == generated(MODEL, prompt(3), 5)


def test_two_backends_of_one_model_do_not_lock_each_other() -> None:
    with tiny_backend(MODEL) as one, tiny_backend(MODEL) as other:
        requests = [request(prompt(4 + row, row)) for row in range(4)]
        expected = [generated(MODEL, one.prompt_ids) for one in requests]
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda backend=backend: results.append(run_together(backend, requests)))
            for backend in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == [expected, expected]


@pytest.mark.parametrize("room", [8, 9, 12, 30])
def test_a_structured_answer_is_never_cut(backend: TorchBackend, room: int) -> None:
    """Random weights and a random choice: whatever they want, the answer is whole where its room ends."""
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "string"}}}, "required": ["n"]}
    for seed in range(5):
        sampling = Sampling(temperature=1.5, seed=seed, max_tokens=room)
        stream = backend.submit(Request(prompt(5), sampling, frozenset({2}), constraints.json_schema(schema)))
        ids = [id for event in stream if isinstance(event, Tokens) for id in event.ids]
        assert len(ids) <= room
        assert isinstance(json.loads(tiny_tokenizer().decode(ids))["n"], list)


def test_room_for_less_than_the_shortest_answer_is_refused_before_any_work(backend: TorchBackend) -> None:
    forwards = backend.stats()["forwards"]
    with pytest.raises(BudgetTooSmall, match="there is room for 2"):
        backend.submit(Request(prompt(5), Sampling(max_tokens=2), frozenset({2}), constraints.choice(["0123456789"])))
    assert backend.stats()["forwards"] == forwards
