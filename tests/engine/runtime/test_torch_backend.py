"""Ids of the torch backend against transformers' own, alone and together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.errors import EngineDied, UnsupportedInput, UnsupportedSchema
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import scoring, slots, torch_backend
from chatlocal.engine.runtime.backend import Backend, Done, Request, Tokens
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.running import (
    generated,
    ids_of,
    prompt,
    read_in_pieces,
    request,
    run_alone,
    run_together,
    tiny_backend,
    wait_for,
)
from tests.tiny import tiny_model, tiny_tokenizer

if TYPE_CHECKING:
    from chatlocal.engine.engine import Engine

MODEL = tiny_model()


@pytest.fixture
def backend() -> Iterator[TorchBackend]:
    with tiny_backend(MODEL) as backend:
        yield backend


def test_it_is_a_backend(backend: TorchBackend) -> None:
    assert isinstance(backend, Backend)


@pytest.mark.parametrize("length", [1, 2, 17, 64, 65, 300])
def test_greedy_is_generate(backend: TorchBackend, length: int) -> None:
    ids = prompt(length, seed=length)
    events = list(backend.submit(request(ids, new=20)))
    assert ids_of(events) == generated(MODEL, ids, 20)
    assert events[-1] == Done("length")


def test_greedy_is_generate_where_the_cache_grows(backend: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_COLUMN_STEP", 8)
    lengths = [6, 7, 8, 9, 15, 16, 17, 30]
    prompts = [prompt(length, seed=length) for length in lengths]
    together = run_together(backend, [request(ids, new=20) for ids in prompts])
    assert together == [generated(MODEL, ids, 20) for ids in prompts]


@pytest.mark.parametrize("pieces", [(3, 2), (16, 5), (64, 64)])
def test_a_prompt_read_in_pieces_gives_what_it_gives_whole(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch, pieces: tuple[int, int]
) -> None:
    read_in_pieces(monkeypatch, *pieces)
    prompts = [prompt(length, seed=length) for length in (1, 40, 3, 17, 80, 2)]
    together = run_together(backend, [request(ids, new=10) for ids in prompts])
    assert together == [generated(MODEL, ids, 10) for ids in prompts]


# One of each way to choose, so that every row of a batch is another one.
MIXED = [
    {},
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.7, "seed": 2, "top_k": 5},
    {"temperature": 1.5, "seed": 3, "top_p": 0.8},
    {"temperature": 1.2, "seed": 4, "min_p": 0.05},
    {"temperature": 0.9, "seed": 5, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.8},
    {"temperature": 1.0, "seed": 6, "frequency_penalty": 0.5},
    {"temperature": 2.0, "seed": 7, "repetition_penalty": 1.1, "presence_penalty": -0.3, "top_p": 0.9},
    {"temperature": 1.0, "seed": 8, "top_k": 300},
    {"temperature": 1e-3, "seed": 9},
    {"temperature": 1.0, "seed": 10},
    {},
    {"temperature": 1.0, "seed": 11, "top_k": 1},
]


def mixed_requests() -> list[Request]:
    lengths = [3, 50, 11, 7, 64, 5, 23, 9, 2, 31, 12, 6, 40, 8, 19, 4]
    return [
        request(prompt(length, seed=row), new=6 + 3 * (row % 5), **sampling)
        for row, (length, sampling) in enumerate(zip(lengths, MIXED, strict=True))
    ]


def test_sixteen_together_give_what_each_gives_alone(backend: TorchBackend) -> None:
    alone = run_alone(backend, mixed_requests())
    assert run_together(backend, mixed_requests()) == alone
    assert run_together(backend, reversed(mixed_requests())) == alone[::-1]


def test_waiting_for_a_slot_changes_nothing() -> None:
    with tiny_backend(MODEL, max_batch=3) as narrow, tiny_backend(MODEL) as wide:
        assert run_together(narrow, mixed_requests()) == run_alone(wide, mixed_requests())


def test_structured_requests_share_the_batch_with_others(backend: TorchBackend) -> None:
    ends = frozenset({2})
    specs = [constraints.regex("[0-9]{4}"), constraints.choice(["yes", "no, never"]), None]
    requests = [
        Request(prompt(4 + row, row), Sampling(max_tokens=12, temperature=1.0, seed=row), ends, specs[row % 3])
        for row in range(12)
    ]
    alone = run_alone(backend, requests)
    assert run_together(backend, requests) == alone
    texts = [tiny_tokenizer().decode(ids) for ids in alone]
    assert all(len(text) == 4 and text.isdigit() for text in texts[0::3])
    assert all(text in ("yes", "no, never") for text in texts[1::3])


def test_requests_that_arrive_while_others_run(backend: TorchBackend) -> None:
    first = backend.submit(request(prompt(5), new=60))
    beginning = [next(first) for _ in range(3)]
    late = [backend.submit(request(prompt(100 * row + 1, row), new=4)) for row in (1, 2, 3)]
    expected = [generated(MODEL, prompt(100 * row + 1, row), 4) for row in (1, 2, 3)]
    assert [ids_of(stream) for stream in late] == expected
    assert ids_of([*beginning, *first]) == generated(MODEL, prompt(5), 60)


def test_rows_that_end_in_any_order(backend: TorchBackend) -> None:
    lengths = [9, 1, 14, 3, 7, 12, 2, 5]
    streams = [backend.submit(request(prompt(6 + row, row), new=new)) for row, new in enumerate(lengths)]
    streams[2].close()
    streams[5].close()
    rest = [backend.submit(request(prompt(20 + row, row), new=8)) for row in range(4)]
    for row, new in enumerate(lengths):
        if row not in (2, 5):
            assert ids_of(streams[row]) == generated(MODEL, prompt(6 + row, row), new)
    assert [ids_of(stream) for stream in rest] == [generated(MODEL, prompt(20 + row, row), 8) for row in range(4)]


def test_an_end_id_ends_and_is_reported(backend: TorchBackend) -> None:
    ids = generated(MODEL, prompt(9), 12)
    end = next(id for id in ids if ids.index(id) >= 3)
    events = list(backend.submit(Request(prompt(9), Sampling(max_tokens=12), frozenset({end, 0}))))
    assert ids_of(events) == ids[: ids.index(end)]
    assert events[-1] == Done("stop", end)


def test_logprobs_are_those_of_the_plain_forward(backend: TorchBackend) -> None:
    sampling = Sampling(max_tokens=5, temperature=1.5, seed=3, repetition_penalty=1.4)
    events = list(backend.submit(Request(prompt(8), sampling, logprobs=3)))
    ids = ids_of(events)
    with torch.inference_mode():
        rows = MODEL(input_ids=torch.tensor([[*prompt(8), *ids]])).logits[0, 7:-1].log_softmax(-1)
    for row, id, event in zip(rows, ids, events, strict=False):
        assert isinstance(event, Tokens)
        (report,) = event.logprobs
        assert report.id == id
        assert report.logprob == pytest.approx(float(row[id]), abs=1e-5)
        best = row.topk(3)
        assert [id for id, _ in report.top] == best.indices.tolist()
        assert [value for _, value in report.top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_logprobs_are_not_computed_unasked(backend: TorchBackend) -> None:
    assert all(event.logprobs == () for event in backend.submit(request(prompt(3))) if isinstance(event, Tokens))


def test_without_a_limit_a_request_runs_to_its_end_id(backend: TorchBackend) -> None:
    ids = generated(MODEL, prompt(9), 40)
    end = next(id for id in reversed(ids) if ids.index(id) > 5)
    assert ids_of(backend.submit(Request(prompt(9), Sampling(), frozenset({end})))) == ids[: ids.index(end)]


# scores


def score_of(model: Any, prompt_ids: tuple[int, ...], continuation: tuple[int, ...]) -> float:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt_ids, *continuation]])).logits[0].double().log_softmax(-1)
    return sum(float(logits[len(prompt_ids) - 1 + place, id]) for place, id in enumerate(continuation))


def test_scores_are_those_of_the_plain_forward(backend: TorchBackend) -> None:
    continuations = [(5,), (5, 9, 300), (2, 0), (), (7,) * 9]
    running = backend.submit(request(prompt(4), new=50))
    scores = backend.score(prompt(20), continuations)
    assert scores == pytest.approx([score_of(MODEL, prompt(20), ids) for ids in continuations], abs=1e-4)
    assert ids_of(running) == generated(MODEL, prompt(4), 50)


def test_a_continuation_costs_one_forward_whatever_its_length(backend: TorchBackend) -> None:
    backend.score(prompt(20), [(7,) * 9, (5,) * 40, ()])
    assert backend.stats()["forwards"] <= 2
    assert backend.stats()["running"] == backend.stats()["waiting"] == 0


def test_long_continuations_are_read_with_few_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MOST_AT_ONCE", 4)
    ids = prompt(11, seed=5)
    with tiny_backend(MODEL) as backend:
        assert backend.score(prompt(3), [ids]) == pytest.approx([score_of(MODEL, prompt(3), ids)], abs=1e-4)
        assert backend.stats()["forwards"] == 3


def test_scores_that_are_no_numbers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with tiny_backend(MODEL) as backend:
        monkeypatch.setattr(scoring, "score_rows", lambda *_: [float("nan")])
        with pytest.raises(EngineDied, match="not numbers"):
            backend.score(prompt(3), [(5,)])
        assert not backend.closed


# what is refused


@pytest.mark.parametrize("wrong", [(5, 100_000), (-1,), ()])
def test_ids_that_the_model_lacks_are_refused(backend: TorchBackend, wrong: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedInput, match=r"empty|does not know"):
        backend.submit(request(wrong))
    with pytest.raises(UnsupportedInput, match=r"empty|does not know"):
        backend.score(wrong, [(5,)])
    assert backend.stats()["running"] == backend.stats()["waiting"] == 0


def test_media_is_refused(backend: TorchBackend) -> None:
    with pytest.raises(UnsupportedInput, match="text only"):
        backend.submit(Request(prompt(3), media=(b"picture",)))


def test_a_batch_of_none_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match="max_batch"):
        TorchBackend(MODEL, tiny_tokenizer(), max_batch=0)


def test_a_constraint_that_cannot_be_compiled_is_refused_before_any_work(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_backend, "_LONG", 60.0)
    with pytest.raises(UnsupportedSchema):
        backend.submit(Request(prompt(3), stop_ids=frozenset({2}), constraint_spec=constraints.regex(r"(?=a)b")))
    assert backend.stats()["forwards"] == 0


def test_the_prompt_is_read_while_a_constraint_takes_long_to_compile(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = constraints.regex("[a-d]{3}|[e-h]{4}")
    seen: list[int] = []

    def slow(*arguments: Any, **settings: Any) -> Any:
        wait_for(lambda: backend.stats()["forwards"] > 0, "the prompt is being read")
        seen.append(backend.stats()["tokens_out"])
        return constraints.compile(*arguments, **settings)

    monkeypatch.setattr(torch_backend, "_LONG", 0.0)
    monkeypatch.setattr(torch_backend, "compile", slow)
    asked = Request(prompt(30), Sampling(max_tokens=9), frozenset({2}), spec)
    ids = ids_of(backend.submit(asked))
    assert seen == [0]
    monkeypatch.undo()
    assert ids == ids_of(backend.submit(asked))


def test_a_refusal_after_an_early_start_frees_the_slot(backend: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        wait_for(lambda: backend.stats()["running"] == 1, "it was begun")
        raise UnsupportedSchema("regex", "", "no")

    monkeypatch.setattr(torch_backend, "_LONG", 0.0)
    monkeypatch.setattr(torch_backend, "compile", refuse)
    with pytest.raises(UnsupportedSchema):
        backend.submit(Request(prompt(30), Sampling(max_tokens=9), frozenset({2}), constraints.regex("[i-l]{3}")))
    wait_for(lambda: backend.stats()["running"] == 0, "the slot is free")
    assert backend.stats()["tokens_out"] == backend.stats()["cancelled"] == 0


def test_one_that_waits_for_its_constraint_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, other = constraints.regex("[m-p]{3}"), Request(prompt(7), Sampling(max_tokens=4))
    with tiny_backend(MODEL, max_batch=1) as backend:
        expected = ids_of(backend.submit(other))

        def slow(*arguments: Any, **settings: Any) -> Any:
            wait_for(lambda: backend.stats()["running"] == 1, "it was begun")
            assert ids_of(backend.submit(other)) == expected
            return constraints.compile(*arguments, **settings)

        monkeypatch.setattr(torch_backend, "_LONG", 0.0)
        monkeypatch.setattr(torch_backend, "compile", slow)
        asked = Request(prompt(30), Sampling(max_tokens=9), frozenset({2}), spec)
        ids = ids_of(backend.submit(asked))
        monkeypatch.undo()
        assert ids == ids_of(backend.submit(asked))


def test_two_that_become_ready_at_once_have_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [constraints.regex("[q-t]{3}"), constraints.regex("[u-x]{4}")]
    requests = [Request(prompt(20 + row), Sampling(max_tokens=9), frozenset({2}), one) for row, one in enumerate(specs)]
    with tiny_backend(MODEL, max_batch=1) as backend:
        both = threading.Barrier(2)
        begin = Sequence.begin

        def slow(*arguments: Any, **settings: Any) -> Any:
            wait_for(lambda: backend.stats()["running"] == 2, "both were begun")
            return constraints.compile(*arguments, **settings)

        def together(sequence: Sequence, budget: Any) -> None:
            begin(sequence, budget)
            both.wait(60)

        monkeypatch.setattr(Sequence, "begin", together)
        monkeypatch.setattr(torch_backend, "_LONG", 0.0)
        monkeypatch.setattr(torch_backend, "compile", slow)
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda one: ids_of(backend.submit(one)), requests))
        monkeypatch.undo()
        assert answers == [ids_of(backend.submit(one)) for one in requests]


# the real model


def test_the_embedded_model_alone_and_in_a_batch_of_sixteen(embedded_engine: Engine) -> None:
    backend = embedded_engine.backend
    assert isinstance(backend, TorchBackend)
    words = ["Tell", "me", "what", "you", "know", "about", "the", "sea", "and", "its", "many", "fish", "of", "all"]
    requests = [
        Request(
            tuple(embedded_engine.tokenizer.encode(" ".join(words[: 2 + row % 9]))),
            Sampling(max_tokens=3, **sampling),
        )
        for row, sampling in enumerate(MIXED)
    ]
    chosen = [0, 3, 4, 7]
    together = run_together(backend, requests)
    assert [together[row] for row in chosen] == run_alone(backend, [requests[row] for row in chosen])
    assert together[0] == generated(embedded_engine.model, requests[0].prompt_ids, 3)
