"""A prompt starts from the longest beginning that is in the cache, and what comes out is what it gives alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Done, Request, TokenEvent, Tokens
from chatlocal.engine.runtime.runner_choice import choose_runner
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.single_runners import PlainRunner
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.architectures import architecture
from tests.engine.runtime.running import generated, ids_of, prompt, request, run_together, tiny_backend, wait_for
from tests.tiny import tiny_model

MODEL = tiny_model(max_position_embeddings=2048)


@pytest.fixture
def backend() -> Iterator[TorchBackend]:
    with tiny_backend(MODEL) as backend:
        yield backend


def cached(events: Iterable[TokenEvent]) -> int:
    """How many ids of its prompt a request did not have to read; each of its events says the same."""
    (count,) = {event.cached for event in events}
    return count


class Reading:
    """Counts the ids that the runner of a backend reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: TorchBackend) -> None:
        self.ids = 0
        runner = backend._scheduler._runner
        forward = runner.forward

        def counted(work: list[tuple[Sequence, int]]) -> torch.Tensor:
            self.ids += sum(count for _, count in work)
            return forward(work)

        monkeypatch.setattr(runner, "forward", counted)


def test_the_next_turn_reads_what_is_new_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with tiny_backend(MODEL, drafting=False) as backend, tiny_backend(MODEL, prefix_reuse=False) as afresh:
        reading = Reading(monkeypatch, backend)
        turn = prompt(100)
        before = 0
        for number in range(4):
            reading.ids = 0
            events = list(backend.submit(request(turn, new=12)))
            answer = ids_of(events)
            assert answer == generated(MODEL, turn, 12) == ids_of(afresh.submit(request(turn, new=12)))
            # The last id of an answer was chosen and not read.
            assert cached(events) == before
            assert reading.ids == len(turn) - before + 11
            before = len(turn) + 11
            turn = (*turn, *answer, *prompt(7 + number, seed=number + 1))
        assert backend.stats()["cached_prompt_tokens"] > 300
        assert afresh.stats()["cached_prompt_tokens"] == 0


def test_another_beginning_reads_everything(backend: TorchBackend) -> None:
    list(backend.submit(request((5, *prompt(80)))))
    events = list(backend.submit(request((6, *prompt(80)))))
    assert cached(events) == 0
    assert ids_of(events) == generated(MODEL, (6, *prompt(80)))


def test_the_same_prompt_reads_its_last_id(backend: TorchBackend) -> None:
    once, again = (list(backend.submit(request(prompt(50)))) for _ in range(2))
    assert ids_of(once) == ids_of(again) == generated(MODEL, prompt(50))
    assert (cached(once), cached(again)) == (0, 49)


def test_an_answer_that_is_branched_off_from_stays_for_others(backend: TorchBackend) -> None:
    shared = prompt(60)
    for tail in (1, 2, 3):
        list(backend.submit(request((*shared, *prompt(20, seed=tail)))))
    for tail in (1, 2, 3):
        ids = (*shared, *prompt(20, seed=tail), 7)
        events = list(backend.submit(request(ids)))
        assert cached(events) == 80
        assert ids_of(events) == generated(MODEL, ids)


def test_logits_are_those_of_a_prompt_that_is_read_whole() -> None:
    runner = choose_runner(MODEL).runner
    with torch.inference_mode():
        first = Sequence(Request(prompt(300)))
        runner.start(first)
        runner.forward([(first, 300)])
        for length in (1, 17, 150, 299):
            ids = (*prompt(length), *prompt(40, seed=9))
            one = Sequence(Request(ids))
            runner.start(one)
            assert one.cached >= length
            logits = runner.forward([(one, one.pending)])
            whole = MODEL(torch.tensor([ids])).logits[0, -1]
            assert torch.allclose(logits[0], whole, atol=1e-4)


def test_what_is_running_is_shared_too(backend: TorchBackend) -> None:
    running = backend.submit(request(prompt(200), new=1000))
    first = next(running)
    events = list(backend.submit(request((*prompt(200), 4, 5))))
    assert cached(events) == 200
    assert ids_of(events) == generated(MODEL, (*prompt(200), 4, 5))
    assert isinstance(first, Tokens)
    beginning = [*first.ids, *(id for _ in range(20) for id in getattr(next(running), "ids", ()))]
    running.close()
    assert beginning == generated(MODEL, prompt(200), len(beginning))


def test_prompts_that_arrive_together_read_what_they_share_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = prompt(400)
    requests = [request((*shared, *prompt(9, seed=row)), new=4) for row in range(8)]
    with tiny_backend(MODEL, drafting=False) as backend:
        reading = Reading(monkeypatch, backend)
        held = backend.submit(request(prompt(5, seed=99), new=1500))  # so that all eight are let in at once
        next(held)
        events = [list(stream) for stream in [backend.submit(one) for one in requests]]
        held.close()
        assert [ids_of(one) for one in events] == [generated(MODEL, one.prompt_ids, 4) for one in requests]
        assert sorted(cached(one) for one in events) == [0] + [400] * 7
        assert reading.ids < 400 + 8 * (9 + 4) + 5 + 1500


def test_a_leader_that_goes_away_stops_nobody(backend: TorchBackend) -> None:
    shared = prompt(1200)
    for _ in range(3):
        streams = [backend.submit(request((*shared, row), new=3)) for row in range(4)]
        streams[0].close()
        assert [ids_of(one) for one in streams[1:]] == [generated(MODEL, (*shared, row), 3) for row in (1, 2, 3)]


def test_a_seed_gives_the_same_ids_with_and_without_reuse() -> None:
    requests = [
        request((*prompt(30), row), new=20, temperature=1.0, seed=row, repetition_penalty=1.2) for row in range(6)
    ]
    with tiny_backend(MODEL) as backend, tiny_backend(MODEL, prefix_reuse=False) as afresh:
        expected = run_together(afresh, requests)
        assert run_together(backend, requests) == expected
        assert run_together(backend, requests) == expected
        assert backend.stats()["cached_prompt_tokens"] > 0


def test_structured_answers_start_from_what_is_held(backend: TorchBackend) -> None:
    spec = constraints.json_schema({"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}})
    asked = Request(prompt(40), Sampling(max_tokens=40), frozenset({2}), spec)
    once, again = (list(backend.submit(asked)) for _ in range(2))
    assert ids_of(once) == ids_of(again)
    assert cached(again) == 39


def test_what_broke_is_not_held(backend: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = backend._scheduler._runner
    forward = runner.forward

    def nonsense(work: Any) -> torch.Tensor:
        return forward(work) * torch.nan

    with monkeypatch.context() as patch:
        patch.setattr(runner, "forward", nonsense)
        with pytest.raises(Exception, match="not numbers"):
            list(backend.submit(request(prompt(30))))
    events = list(backend.submit(request(prompt(30))))
    assert cached(events) == 0
    assert ids_of(events) == generated(MODEL, prompt(30))


def test_a_cancelled_stream_leaves_what_it_read(backend: TorchBackend) -> None:
    stream = backend.submit(request(prompt(90), new=1500))
    next(stream)
    stream.close()
    wait_for(lambda: backend.stats()["running"] == 0, "it is gone")
    assert cached(backend.submit(request((*prompt(90), 3)))) == 90


def test_turned_off_nothing_is_held() -> None:
    with tiny_backend(MODEL, prefix_reuse=False) as backend:
        for _ in range(2):
            events = list(backend.submit(request(prompt(50))))
            assert cached(events) == 0
        assert "dropped" in backend.describe()["cache"]


# one by one


def test_plain_caches_are_held_too() -> None:
    model = architecture("bloom", n_layer=2, n_head=4)
    with tiny_backend(model) as backend:
        assert isinstance(backend._scheduler._runner, PlainRunner)
        ids = prompt(40)
        for known in (0, 40 + 11):
            events = list(backend.submit(request(ids)))
            assert cached(events) == known
            assert ids_of(events) == generated(model, ids)
            ids = (*ids, *ids_of(events), *prompt(5, seed=3))
        branched = (*prompt(30), 9, 8, 7)
        events = list(backend.submit(request(branched)))
        assert cached(events) == 30
        assert ids_of(events) == generated(model, branched)
        assert cached(backend.submit(request(ids))) > 50  # what was branched off from is still there


@pytest.mark.parametrize("kind", ["mistral", "mamba"])
def test_windows_and_states_are_not_reused(kind: str) -> None:
    settings: dict[str, Any] = {"mistral": {"sliding_window": 8}, "mamba": {"state_size": 8}}[kind]
    model = architecture(kind, **settings)
    with tiny_backend(model) as backend:
        for _ in range(2):
            events = list(backend.submit(request(prompt(30))))
            assert cached(events) == 0
            assert ids_of(events) == generated(model, prompt(30))


# scoring


def score_of(prompt_ids: tuple[int, ...], continuation: tuple[int, ...]) -> float:
    with torch.inference_mode():
        logits = MODEL(input_ids=torch.tensor([[*prompt_ids, *continuation]])).logits[0].log_softmax(-1)
    return sum(float(logits[len(prompt_ids) - 1 + place, id]) for place, id in enumerate(continuation))


def test_scoring_reads_the_prompt_once_and_leaves_it_to_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    continuations = [(5, 6, 7), (9,), (5, 6, 300, 301), (2, 2)]
    with tiny_backend(MODEL) as backend:
        reading = Reading(monkeypatch, backend)
        scores = backend.score(prompt(500), continuations)
        assert scores == pytest.approx([score_of(prompt(500), ids) for ids in continuations], abs=1e-4)
        assert reading.ids <= 500 + 4 * (1 + 4)
        events = list(backend.submit(request(prompt(500))))
        assert cached(events) == 499
        assert ids_of(events) == generated(MODEL, prompt(500))
        assert isinstance(events[-1], Done)


def test_scoring_beside_streams_reads_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    with tiny_backend(MODEL) as backend:
        running = backend.submit(request(prompt(5), new=600))
        next(running)
        ids = prompt(150, seed=4)
        assert backend.score(prompt(20), [ids]) == pytest.approx([score_of(prompt(20), ids)], abs=1e-3)
        running.close()


def test_a_model_that_cannot_take_several_ids_is_scored_by_plain_forwards() -> None:
    model = architecture("mamba", state_size=8)
    with tiny_backend(model) as backend:
        (score,) = backend.score(prompt(9), [(5, 6)])
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt(9), 5, 6]])).logits[0].log_softmax(-1)
    assert score == pytest.approx(float(logits[8, 5] + logits[9, 6]), abs=1e-4)


def test_long_prompts_in_random_order_give_what_they_give_alone() -> None:
    """Every prompt begins with one of three, so rows are taken over, copied and shared while they run."""
    chosen = random.Random(3)
    starts = [prompt(length, seed=length) for length in (5, 90, 200)]
    requests = [
        request((*chosen.choice(starts), *prompt(chosen.randrange(1, 30), seed=row)), new=chosen.randrange(1, 20))
        for row in range(40)
    ]
    with tiny_backend(MODEL, max_batch=5, cache_tokens=1500) as backend:
        answers = run_together(backend, requests)
        assert backend.stats()["cached_prompt_tokens"] > 0
    for one, answer in zip(requests, answers, strict=True):
        assert answer == generated(MODEL, one.prompt_ids, one.sampling.max_tokens or 0)
