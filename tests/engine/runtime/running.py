"""Requests on a backend, and what transformers' own `generate` gives for the same prompts."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from chatlocal.engine.engine import Engine
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import scheduler
from chatlocal.engine.runtime.backend import Request, TokenEvent, Tokens
from chatlocal.engine.runtime.pacing import Pace
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.tiny import tiny_model, tiny_tokenizer


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Ordinary ids of the tiny vocabulary."""
    chosen = random.Random(seed)
    return tuple(chosen.randrange(3, 400) for _ in range(length))


def request(prompt_ids: Iterable[int], new: int = 12, **sampling: Any) -> Request:
    return Request(tuple(prompt_ids), Sampling(max_tokens=new, **sampling))


def ids_of(events: Iterable[TokenEvent]) -> list[int]:
    return [id for event in events if isinstance(event, Tokens) for id in event.ids]


def run_together(backend: TorchBackend, requests: Iterable[Request]) -> list[list[int]]:
    """The ids of each request; all are submitted before the first is read."""
    return [ids_of(stream) for stream in [backend.submit(request) for request in requests]]


def run_alone(backend: TorchBackend, requests: Iterable[Request]) -> list[list[int]]:
    """The ids of each request, one after the other."""
    return [ids_of(backend.submit(request)) for request in requests]


def generated(model: Any, prompt_ids: Iterable[int], new: int = 12) -> list[int]:
    """The new ids of transformers' greedy search, whatever ends an answer."""
    ids = torch.tensor([list(prompt_ids)])
    with torch.inference_mode():
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=new,
            eos_token_id=10**6,
            pad_token_id=0,
        )
    return whole[0, ids.shape[1] :].tolist()


@contextmanager
def tiny_backend(model: Any = None, **options: Any) -> Iterator[TorchBackend]:
    backend = TorchBackend(model if model is not None else tiny_model(), tiny_tokenizer(), **options)
    try:
        yield backend
    finally:
        backend.close()


def read_in_pieces(monkeypatch: pytest.MonkeyPatch, idle: int, busy: int) -> None:
    """Prompts are read in pieces of so many ids while no stream runs, and while one does."""
    monkeypatch.setattr(scheduler, "_PREFILL_IDLE", (idle, 2 * idle))
    monkeypatch.setattr(Pace, "ids", lambda *_, **__: busy)


def wait_for(reached: Callable[[], bool], what: str) -> None:
    """Wait until something holds. The limit only ends a test that has failed."""
    limit = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < limit, f"never came about: {what}"
        time.sleep(0.002)


def scheduler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "chatlocal-scheduler"]


def tiny_engine(max_batch: int = 16, **config: Any) -> Engine:
    """An engine over a tiny random model; `config` are settings of the model."""
    return Engine(tiny_model(**config), tiny_tokenizer(), max_batch=max_batch)


def begun(engine: Engine) -> int:
    """How many requests of an engine run and wait."""
    return engine.stats()["running"] + engine.stats()["waiting"]
