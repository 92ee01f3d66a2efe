"""Tiny models for every kind of runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chatlocal.engine.runtime import native
from chatlocal.engine.runtime.packed_runner import PackedRunner
from chatlocal.engine.runtime.runner_choice import choose_runner
from chatlocal.engine.runtime.single_runners import PlainRunner
from chatlocal.engine.runtime.slot_runner import SlotRunner
from tests.engine.runtime.architectures import SIZES, architecture
from tests.tiny import tiny_model, tiny_tokenizer

CONTEXT = 1024


def wide(kind: str, **settings: Any) -> Any:
    return architecture(kind, {**SIZES, "max_position_embeddings": CONTEXT}, **settings)


# Every kind of runner: kernels of our own, rows of a shared cache, a cache for each, one that takes nothing back.
MODELS: dict[str, tuple[type, Callable[[], Any]]] = {
    "packed": (PackedRunner, lambda: wide("qwen3", hidden_size=64, intermediate_size=112, head_dim=16)),
    "slots": (SlotRunner, lambda: tiny_model(max_position_embeddings=CONTEXT)),
    "one by one": (PlainRunner, lambda: wide("bloom", n_layer=2, n_head=4)),
    "windows": (PlainRunner, lambda: wide("gemma2", sliding_window=16, head_dim=8)),
}


def model_of(kind: str) -> Any:
    if kind == "packed" and native.kernels() is None:
        pytest.skip("the kernels were not built for this processor")
    runner, make = MODELS[kind]
    model = make()
    assert type(choose_runner(model).runner) is runner
    return model


def tokenizer() -> Any:
    made = tiny_tokenizer()
    made.model_max_length = CONTEXT
    return made
