"""Rows `step`: a step of the engine against the forward of the model by itself, and against the limit of the memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from chatlocal.engine import loading
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.causal_model import CausalModel
from chatlocal.engine.runtime.sequence import Sequence
from speed.bandwidth import Memory
from speed.children import Child, Sides
from speed.lines import Line, median
from speed.machine import Facts
from speed.ours import Chatlocal
from speed.prompts import long_ids
from speed.settings import Settings

ROW = "step"
BATCHES = (1, 16)
LENGTH = 64


class Bare:
    """The transformers model called with its DynamicCache: one new id for each row, nothing chosen."""

    def __init__(self, settings: Settings) -> None:
        loaded = loading.load(settings.model, **settings.load)
        self._model = CausalModel(loaded.model)
        self._tokenizer = loaded.tokenizer

    @torch.inference_mode()
    def step(self, streams: int, length: int, new: int, start: int = 0) -> float:
        """Median seconds of a forward behind prompts of `length` ids."""
        from transformers import DynamicCache

        device = self._model.device
        ids = torch.tensor([long_ids(self._tokenizer, length, start + row) for row in range(streams)], device=device)
        last = torch.tensor([0], device=device)
        cache = DynamicCache(config=self._model.model.config)
        self._model(ids, last, cache)
        one = ids[:, :1]
        return _median_seconds(lambda: self._model(one, last, cache), new + 2, device)


class Runner:
    """The engine's runner by itself: the same forward as in the engine, nothing chosen and no scheduler."""

    def __init__(self, settings: Settings) -> None:
        from chatlocal.engine.engine import Engine

        # An engine that is never asked: its runner is free for us, made as the engine makes it.
        self._engine = Engine.load(settings.model, **settings.load)
        self._runner: Any = self._engine.backend._scheduler._runner  # type: ignore[attr-defined]

    @torch.inference_mode()
    def step(self, streams: int, length: int, new: int, start: int = 0) -> float:
        tokenizer = self._engine.tokenizer
        rows = [
            Sequence(Request(tuple(long_ids(tokenizer, length, start + row)), Sampling(max_tokens=new + 8)))
            for row in range(streams)
        ]
        for sequence in rows:
            sequence.begun = True
        self._runner.forward([(sequence, sequence.pending) for sequence in rows])

        def forward() -> None:
            for sequence in rows:
                sequence.take(sequence.ids[0], 0.0, None)
            self._runner.forward([(sequence, sequence.pending) for sequence in rows])

        try:
            return _median_seconds(forward, new + 2, self._engine.model.device)
        finally:
            for sequence in rows:
                self._runner.release(sequence)


def _median_seconds(forward: Callable[[], Any], times: int, device: torch.device) -> float:
    """The first two are not counted."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        forward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - start)
    return statistics.median(took[2:])


def measure(settings: Settings, facts: Facts) -> list[Line]:
    makers = {
        "chatlocal": Child(Chatlocal, settings, drafting=False, prefix_reuse=False),
        "runner": Child(Runner, settings),
        "bare": Child(Bare, settings),
        "memory": Child(Memory, settings),
    }
    new, length = settings.least(48, 12), settings.tokens(LENGTH)
    seconds: dict[tuple[str, int], list[float]] = {(name, batch): [] for name in makers for batch in BATCHES}
    speeds = []
    with Sides(makers) as sides:
        for number in range(settings.rounds + 1):
            for batch in BATCHES:
                for name in ("chatlocal", "runner", "bare"):
                    took = sides.call(name, "step", batch, length, new if number else 4)
                    if took is not None and number:
                        seconds[name, batch].append(took)
            speeds.append(sides.call("memory", "bandwidth"))
        missing = sides.missing
    steps = {key: None if (found := median(took)) is None else 1000 * found for key, took in seconds.items()}
    lines = []
    for batch in BATCHES:
        what = "a step of one stream" if batch == 1 else f"a step of {batch} streams"
        for name, title in (("bare", "the bare model with DynamicCache"), ("runner", "the engine's own forward")):
            note = missing.get("chatlocal", missing.get(name, ""))
            lines.append(Line(ROW, what, "ms", steps["chatlocal", batch], title, steps[name, batch], "of", note))
    speed = max((found for found in speeds if found), default=None)
    one = steps["chatlocal", 1]
    limit = None if speed is None else speed / facts.read
    note = missing.get("memory", "" if speed is None else f"memory read at {speed / 1e9:.1f} GB/s")
    rate = None if one is None else 1000 / one
    lines.append(
        Line(ROW, "one stream without drafts", "tokens/s", rate, "limit of the memory's bandwidth", limit, "of", note)
    )
    return lines
