"""Mixed requests from many threads and an event loop on one engine: every one ends as it should, and none are mixed.

The cache is small, so that requests are sent back to the queue, what is held is given up, and new ones wait for room.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import torch

from chatlocal.engine.engine import Engine
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.single_runners import PlainRunner
from chatlocal.engine.runtime.stream import TokenStream
from tests.engine.runtime.running import begun, wait_for
from tests.engine.soak.models import CONTEXT, MODELS, model_of, tokenizer
from tests.engine.soak.recipes import Recipe, Scale, recipes
from tests.engine.soak.traffic import Answer, Order, orders, run_all, run_at_once, run_one

TINY = Scale(context=CONTEXT, vocabulary=500, cache_tokens=1100, stop_ids=frozenset({2}))
MAX_BATCH = 16

# Bytes. Measured: -4 to 12 MB; each thread's allocator keeps some.
_MOST_GROWTH = 48 * 2**20


class Watch:
    """What is looked at while an engine runs: how many were let in, and that the cache keeps to its budget."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        scheduler = engine.backend._scheduler  # type: ignore[attr-defined]
        self.runner = scheduler._runner
        self.positions = engine.backend._positions  # type: ignore[attr-defined]
        self.let_in = 0
        self.unready: list[Sequence] = []
        self.largest = 0
        self._lock = threading.Lock()
        self._submit, self._forward = scheduler.submit, self.runner.forward
        monkeypatch.setattr(scheduler, "submit", self.submit)
        monkeypatch.setattr(self.runner, "forward", self.forward)

    def submit(self, sequence: Sequence) -> None:
        self._submit(sequence)
        with self._lock:
            self.let_in += 1
            if not sequence.ready:
                self.unready.append(sequence)

    def forward(self, work: list[tuple[Sequence, int]]) -> torch.Tensor:
        logits: torch.Tensor = self._forward(work)
        self.largest = max(self.largest, self.used())
        return logits

    def used(self) -> int:
        """How many positions the cache has now."""
        if isinstance(self.runner, PlainRunner):
            lengths = [sequence.cached for sequence in self.runner._caches]
            return sum(lengths) + sum(len(ids) for ids, _ in self.runner._held)
        rows = [layer.keys.shape for layer in self.runner._cache.layers if layer.is_initialized]
        return max((shape[0] * (shape[2] - 1) for shape in rows), default=0)  # nobody sees the last column

    @property
    def counted(self) -> int:
        """How many must have been counted as ended: those that were refused while their prompt was read are not."""
        return self.let_in - sum(not sequence.ready for sequence in self.unready)


@contextmanager
def soaked(model: Any, tokenizer: Any, scale: Scale, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, Watch]]:
    engine = Engine(model, tokenizer, max_batch=MAX_BATCH, cache_tokens=scale.cache_tokens)
    with monkeypatch.context() as patch:
        watch = Watch(engine, patch)
        try:
            yield engine, watch
            wait_for(lambda: begun(engine) == 0, "nothing runs")
        finally:
            engine.close()


def alone(model: Any, tokenizer: Any, scale: Scale, made: list[Recipe]) -> list[Answer]:
    budget = scale.cache_tokens
    """What each gets that is alone on an engine without drafts and without anything of others."""
    with Engine(model, tokenizer, max_batch=1, cache_tokens=budget, drafting=False, prefix_reuse=False) as engine:
        return [run_one(engine, Order(recipe, in_loop=False)) for recipe in made]


def check(order: Order, answer: Answer, expected: Answer) -> None:
    """Whether this can be what came of it."""
    about = f"{order}\n{answer}\n{expected}"
    if answer.end == "GenerationTimeout":
        assert order.timeout is not None, about
        assert order.timeout < 1, about
    elif answer.end == "left":
        assert order.leaves is not None, about
        assert expected.text.startswith(answer.text), about
        if order.recipe.ids is not None and order.recipe.ids.constraint_spec is None:
            assert expected.ids[: len(answer.ids)] == answer.ids, about
    else:
        assert answer.words == expected.words, about
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-3), about


def check_alone(recipe: Recipe, answer: Answer, tokenizer: Any) -> None:
    """Whether the answer is of the kind that was asked for, and this request's own."""
    if recipe.refused is not None:
        assert answer.end == recipe.refused.__name__, (recipe, answer)
        return
    assert answer.end in ("stop", "length", "tool_calls"), (recipe, answer)
    text = answer.text if recipe.chat is not None else tokenizer.decode(answer.ids)
    assert recipe.shows(text), (recipe, answer)
    limit = recipe.sampling.max_tokens
    assert limit is not None
    assert max(len(answer.ids), answer.usage[1]) <= limit
    assert all(name.endswith(f"_{recipe.number}") for name, _ in answer.calls), (recipe, answer)
    assert bool(answer.calls) or recipe.kind != "demanded", (recipe, answer)


@dataclass(frozen=True)
class Outcome:
    """What a soak gave: answers, the engine's counts, and `grown` bytes of memory since a third of the requests."""

    answers: list[Answer]
    rushed: list[Answer]
    stats: dict[str, int]
    counted: int
    largest: int
    positions: int
    reuses: bool
    grown: int


def drive(
    model: Any, tokenizer: Any, scale: Scale, asked: list[Order], rush: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    """All orders on one engine, after a rush of requests that are submitted in one go."""
    process, ended, before = psutil.Process(), [0], [0]
    lock = threading.Lock()

    def after_each() -> None:
        with lock:
            ended[0] += 1
            if ended[0] == len(asked) // 3:
                before[0] = process.memory_info().rss

    with soaked(model, tokenizer, scale, monkeypatch) as (engine, watch):
        read = run_at_once(engine, rush)
        answers = run_all(engine, asked, after_each)
        rushed = read()
        wait_for(lambda: begun(engine) == 0, "nothing runs")
        grown = process.memory_info().rss - before[0]
        reuses = watch.runner.reuses
        stats = engine.stats()
        return Outcome(answers, rushed, stats, watch.counted, watch.largest, watch.positions, reuses, grown)


def requests_in_memory() -> int:
    """How many there are in the process, those of other tests included."""
    gc.collect()
    return sum(type(one) in (Sequence, TokenStream) for one in gc.get_objects())


def soak(model: Any, tokenizer: Any, scale: Scale, count: int, kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, held = set(threading.enumerate()), requests_in_memory()
    made = recipes(kinds, scale)
    expected = alone(model, tokenizer, scale, made)
    for recipe, answer in zip(made, expected, strict=True):
        check_alone(recipe, answer, tokenizer)
    asked = orders(made, count)
    # Long answers side by side are sure to outgrow the cache.
    longs = [recipe for recipe in made if recipe.kind == "long"]
    rush = [longs[number % len(longs)] for number in range(MAX_BATCH)]
    outcome = drive(model, tokenizer, scale, asked, rush, monkeypatch)
    print(outcome.stats, f"at most {outcome.largest} positions, grown by {outcome.grown / 2**20:.1f} MB")

    assert len(outcome.answers) == count
    for order, answer in zip(asked, outcome.answers, strict=True):
        check(order, answer, expected[order.recipe.number])
    for recipe, answer in zip(rush, outcome.rushed, strict=True):
        check(Order(recipe, in_loop=False), answer, expected[recipe.number])
    stats = outcome.stats
    assert stats["failed"] == 0
    assert stats["finished"] + stats["cancelled"] == outcome.counted
    assert stats["preempted"] > 0
    assert stats["cached_prompt_tokens"] > 0 or not outcome.reuses
    assert 0 < outcome.largest <= outcome.positions
    assert outcome.grown < _MOST_GROWTH
    assert requests_in_memory() <= held
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(("kind", "count"), [("packed", 100), ("slots", 100), ("one by one", 40), ("windows", 40)])
def test_mixed_requests(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    soak(model_of(kind), tokenizer(), TINY, count, 26, monkeypatch)


@pytest.mark.evaluate
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", MODELS)
def test_two_thousand_mixed_requests(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    soak(model_of(kind), tokenizer(), TINY, 2000, 260, monkeypatch)


@pytest.mark.evaluate
@pytest.mark.timeout(3600)
def test_mixed_requests_on_the_embedded_model(embedded_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = frozenset({embedded_engine.tokenizer.eos_token_id})
    vocabulary = len(embedded_engine.tokenizer)
    scale = Scale(context=8192, vocabulary=vocabulary, cache_tokens=1100, stop_ids=ends, first_id=100, prompt=400)
    soak(embedded_engine.model, embedded_engine.tokenizer, scale, 150, 65, monkeypatch)
