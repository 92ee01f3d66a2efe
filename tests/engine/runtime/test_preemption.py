"""Requests that outgrow the cache together take turns, and none of them shows it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatlocal.engine import constraints
from chatlocal.engine.errors import EngineDied
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import slots
from chatlocal.engine.runtime.backend import Done, IdLogprob, Request, TokenEvent, Tokens
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slot_runner import SlotRunner
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.architectures import architecture
from tests.engine.runtime.running import generated, ids_of, prompt, request, run_alone, run_together, tiny_backend
from tests.tiny import tiny_model

MODEL = tiny_model(max_position_embeddings=1024)


def small(cache_tokens: int, **options: Any) -> Any:
    return tiny_backend(MODEL, cache_tokens=cache_tokens, **options)


def standing(events: list[TokenEvent]) -> list[int]:
    """The ids of an answer, with those that were replaced replaced."""
    ids: list[int] = []
    for event in events:
        if isinstance(event, Tokens):
            del ids[len(ids) - event.replaces :]
            ids += event.ids
    return ids


def reports_of(events: list[TokenEvent]) -> list[IdLogprob]:
    return [report for event in events if isinstance(event, Tokens) for report in event.logprobs]


def test_answers_that_outgrow_the_cache_together_are_whole() -> None:
    requests = [request(prompt(10 + row, seed=row), new=100) for row in range(6)]
    with small(300) as backend:
        assert run_together(backend, requests) == [generated(MODEL, one.prompt_ids, 100) for one in requests]
        assert backend.stats()["preempted"] > 0
        assert backend.stats()["finished"] == 6


def test_random_numbers_penalties_and_reports_go_on_where_they_were() -> None:
    def asked(row: int) -> Request:
        sampling = Sampling(
            max_tokens=90, temperature=1.0, seed=row, repetition_penalty=1.1, frequency_penalty=0.2, top_p=0.9
        )
        return Request(prompt(8 + row, seed=row), sampling, logprobs=2)

    with small(250) as tight, tiny_backend(MODEL) as wide:
        together = [list(stream) for stream in [tight.submit(asked(row)) for row in range(5)]]
        assert tight.stats()["preempted"] > 0
        for row, events in enumerate(together):
            alone = list(wide.submit(asked(row)))
            assert ids_of(events) == ids_of(alone)
            reports, expected = reports_of(events), reports_of(alone)
            assert [one.id for one in reports] == [one.id for one in expected]
            assert [one.logprob for one in reports] == pytest.approx([one.logprob for one in expected], abs=1e-4)


def test_grammars_go_on_where_they_were() -> None:
    spec = constraints.json_schema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 60, "maxLength": 70},
                "kind": {"enum": ["cat", "dog"]},
                "tail": {"type": "string", "minLength": 60, "maxLength": 70},
            },
            "required": ["name", "kind", "tail"],
        }
    )
    requests = [
        Request(prompt(9, seed=row), Sampling(max_tokens=250, temperature=1.0, seed=row), frozenset({2}), spec)
        for row in range(5)
    ]
    with small(320) as tight, tiny_backend(MODEL) as wide:
        together = [standing(list(stream)) for stream in [tight.submit(one) for one in requests]]
        assert tight.stats()["preempted"] > 0
        assert together == [standing(list(wide.submit(one))) for one in requests]


def test_the_oldest_of_the_highest_priority_is_not_the_one_that_goes() -> None:
    resting: list[tuple[int, int]] = []
    rest = Sequence.rest

    def watched(sequence: Sequence) -> None:
        resting.append((sequence.request.priority, len(sequence.request.prompt_ids)))
        rest(sequence)

    with pytest.MonkeyPatch.context() as patch, small(300) as backend:
        patch.setattr(Sequence, "rest", watched)
        streams = [
            backend.submit(Request(prompt(10 + row, seed=row), Sampling(max_tokens=120), priority=priority))
            for row, priority in enumerate([0, 5, 0, 0])
        ]
        for stream in streams:
            list(stream)
    # The second one is the most important, and of the others the first one was there first.
    assert resting
    assert set(resting) <= {(0, 12), (0, 13)}


def test_one_that_was_sent_back_can_be_cancelled() -> None:
    with small(300) as backend:
        streams = [backend.submit(request(prompt(10 + row, seed=row), new=200)) for row in range(4)]
        kept = ids_of(streams[0])
        for stream in streams[1:]:
            stream.close()
        assert kept == generated(MODEL, prompt(10), 200)
        assert ids_of(backend.submit(request(prompt(30), new=40))) == generated(MODEL, prompt(30), 40)


@pytest.mark.parametrize("kind", ["bloom", "mamba", "mistral"])
def test_models_that_run_one_by_one_take_turns_too(kind: str) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "bloom": {"n_layer": 2, "n_head": 4},
        "mamba": {"state_size": 8},
        "mistral": {"sliding_window": 8},
    }
    model = architecture(kind, **sizes[kind])
    requests = [request(prompt(5 + row, seed=row), new=110) for row in range(5)]
    with tiny_backend(model, cache_tokens=200) as backend:
        expected = [generated(model, one.prompt_ids, 110) for one in requests]
        for _ in range(20):  # whether one has to make room depends on when they arrive
            assert run_together(backend, requests) == expected
            if backend.stats()["preempted"]:
                break
        assert backend.stats()["preempted"] > 0


# memory that runs out although the budget is kept


class Scarce:
    """Makes forwards fail for want of memory where `when` says so of the sequences in them."""

    def __init__(
        self, patch: pytest.MonkeyPatch, backend: TorchBackend, when: Callable[[list[Sequence]], bool], error: Exception
    ) -> None:
        self.failures = 0
        runner = backend._scheduler._runner
        forward = runner.forward

        def failing(work: list[tuple[Sequence, int]]) -> torch.Tensor:
            if when([sequence for sequence, _ in work]):
                self.failures += 1
                raise error
            return forward(work)

        patch.setattr(runner, "forward", failing)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory: you tried to allocate 9"),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_forward_without_memory_is_tried_with_fewer(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    requests = [request(prompt(10 + row, seed=row), new=30) for row in range(6)]
    with tiny_backend(MODEL) as backend:
        scarce = Scarce(monkeypatch, backend, lambda work: len(work) > 2, error)
        assert run_together(backend, requests) == [generated(MODEL, one.prompt_ids, 30) for one in requests]
        assert scarce.failures > 0
        assert backend.stats()["failed"] == 0


def test_one_that_has_no_memory_alone_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request(prompt(10 + row, seed=row), new=30) for row in range(4)]
    with tiny_backend(MODEL) as backend:
        Scarce(monkeypatch, backend, lambda work: any(len(one.request.prompt_ids) == 12 for one in work), ERRORS[0])
        streams = [backend.submit(one) for one in requests]
        for row, stream in enumerate(streams):
            if row == 2:
                with pytest.raises(EngineDied, match="out of memory"):
                    list(stream)
            else:
                assert ids_of(stream) == generated(MODEL, requests[row].prompt_ids, 30)
        assert backend.stats()["failed"] == 1


def test_a_cache_that_cannot_grow_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_COLUMN_STEP", 16)
    requests = [request(prompt(10 + row, seed=row), new=60) for row in range(4)]
    with tiny_backend(MODEL) as backend:
        runner = backend._scheduler._runner
        assert isinstance(runner, SlotRunner)
        reshape, calls = runner._cache.reshape, []

        def failing(rectangle: Any) -> None:
            calls.append(rectangle)
            if len(calls) in (3, 7):
                raise torch.OutOfMemoryError("no memory")
            reshape(rectangle)

        monkeypatch.setattr(runner._cache, "reshape", failing)
        assert run_together(backend, requests) == [generated(MODEL, one.prompt_ids, 60) for one in requests]
        assert len(calls) > 7
        assert backend.stats()["failed"] == 0


def test_a_cache_that_has_no_memory_to_shrink_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller cache is made beside the larger one: for that too there may be no memory."""
    requests = [request(prompt(10 + row, seed=row), new=30) for row in range(5)]
    expected = [generated(MODEL, one.prompt_ids, 30) for one in requests]
    with tiny_backend(MODEL) as backend:
        runner = backend._scheduler._runner
        assert isinstance(runner, SlotRunner)
        reshape, shrinking = runner._cache.reshape, []

        def failing(rectangle: Any) -> None:
            placement = runner._cache.placement
            smaller = rectangle.rows * rectangle.columns < placement.rows * placement.columns
            if smaller and scarce.failures > len(shrinking):
                shrinking.append(rectangle)
                raise torch.OutOfMemoryError("no memory")
            reshape(rectangle)

        ids_of(backend.submit(request(prompt(200), new=3)))  # held, so that there is something to give back
        scarce = Scarce(monkeypatch, backend, lambda work: len(work) > 2, ERRORS[0])
        monkeypatch.setattr(runner._cache, "reshape", failing)
        assert run_together(backend, requests) == expected
        assert shrinking
        assert backend.stats()["failed"] == 0


# traffic


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(60, 400), st.integers(1, 6), st.booleans())
def test_whatever_the_traffic_each_gets_what_it_gets_alone(
    seed: int, cache_tokens: int, max_batch: int, drafting: bool
) -> None:
    """Shared beginnings, cancellations, priorities, seeds and a small cache."""
    chosen = random.Random(seed)
    starts = [prompt(length, seed=length) for length in (3, 12, 25)]
    requests = []
    for row in range(14):
        ids = (*chosen.choice(starts), *prompt(chosen.randrange(8), seed=row))
        new = chosen.randrange(1, min(30, cache_tokens - len(ids)))
        sampled: dict[str, Any] = {"temperature": 1.0, "seed": row} if chosen.random() < 0.4 else {}
        requests.append(Request(ids, Sampling(max_tokens=new, **sampled), priority=chosen.randrange(3)))
    with tiny_backend(MODEL, prefix_reuse=False, drafting=False) as alone:
        expected = run_alone(alone, requests)
    with small(cache_tokens, max_batch=max_batch, drafting=drafting) as backend:
        streams = [backend.submit(one) for one in requests]
        for row, stream in enumerate(streams):
            if chosen.random() < 0.2:
                events = [next(stream)]
                stream.close()
                assert ids_of(events) == expected[row][: len(ids_of(events))]
            else:
                events = list(stream)
                assert isinstance(events[-1], Done)
                assert ids_of(events) == expected[row]
        stats = backend.stats()
        assert stats["failed"] == 0
        assert stats["finished"] + stats["cancelled"] + stats["running"] + stats["waiting"] == len(requests)
