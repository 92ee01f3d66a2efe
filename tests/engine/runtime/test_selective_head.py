"""Logits of the allowed ids alone: the same numbers, and only where the model's head is a plain matrix."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
import torch
from torch import nn

from chatlocal.engine import constraints
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import selective_head
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.runner_choice import choose_runner, read_probe
from chatlocal.engine.runtime.selective_head import SelectiveHead
from tests.engine.runtime.architectures import architecture
from tests.engine.runtime.running import ids_of, prompt, tiny_backend
from tests.tiny import tiny_model

CHOICE = constraints.regex("(yes|no|maybe|never)( (yes|no|maybe|never)){3}")


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny heads are too fast to gain anything: what is timed says nothing here."""
    monkeypatch.setattr(selective_head, "_break_even", lambda head: head.out_features // 2)


@torch.inference_mode()
def head_of(model: Any) -> tuple[SelectiveHead | None, Any]:
    choice = choose_runner(model)

    def probe() -> torch.Tensor:
        try:
            return read_probe(choice.runner, model)
        finally:
            choice.runner.close()

    return SelectiveHead.fitting(model, choice.width, probe), probe


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: tiny_model(), id="llama"),
        pytest.param(lambda: tiny_model(tie_word_embeddings=True), id="tied"),
        pytest.param(lambda: architecture("gemma2", final_logit_softcapping=0.5), id="capped"),
        pytest.param(lambda: architecture("cohere", logit_scale=0.0625), id="scaled"),
        pytest.param(lambda: architecture("gpt2"), id="gpt2"),
        pytest.param(lambda: architecture("mamba"), id="state"),
        pytest.param(lambda: tiny_model().to(torch.bfloat16), id="bfloat16"),
    ],
)
def test_selected_logits_are_those_of_the_whole_head(make: Any) -> None:
    with torch.inference_mode():
        head, probe = head_of(make())
        assert head is not None
        whole = probe()
        ids = torch.tensor([5, 3, 77, 200])
        with head.only(ids):
            selected = probe()
        torch.testing.assert_close(selected, whole[:, ids], rtol=0.02, atol=1e-3)
        spread = head.spread(selected, ids)
        assert spread.shape == whole.shape
        assert spread[:, ids].equal(selected)
        assert spread.isfinite().sum() == selected.numel()
        assert probe().equal(whole)  # as before, outside


class Quantized(nn.Linear):
    """Stands for a head of another kind."""


def test_a_model_that_looks_at_the_width_of_its_logits_keeps_the_whole_head() -> None:
    """As one does that bans some ids."""
    model = tiny_model()
    whole = model.forward

    @wraps(whole)
    def forward(*arguments: Any, **options: Any) -> Any:
        out = whole(*arguments, **options)
        out.logits = out.logits + torch.zeros(model.config.vocab_size)
        return out

    model.forward = forward
    assert head_of(model)[0] is None


def test_a_head_that_is_no_plain_matrix_is_left_alone() -> None:
    model = tiny_model()
    old = model.lm_head
    model.lm_head = Quantized(old.in_features, old.out_features, bias=False)
    assert head_of(model)[0] is None


def test_answers_are_the_same_with_it_and_without() -> None:
    samplings = [Sampling(max_tokens=40, temperature=heat, seed=seed) for seed, heat in enumerate([0.0, 0.0, 1.0, 1.0])]
    requests = [Request(prompt(5 + seed, seed), one, frozenset({2}), CHOICE) for seed, one in enumerate(samplings)]
    answers = {}
    for selective in (True, False):
        with tiny_backend(tiny_model(), selective_head=selective) as backend:
            answers[selective] = [ids_of(backend.submit(one)) for one in requests]
            assert (backend.stats()["selected"] > 0) is selective
    assert answers[True] == answers[False]


def test_beside_a_request_for_all_ids_the_whole_head_is_used() -> None:
    with tiny_backend(tiny_model()) as backend:
        free = backend.submit(Request(prompt(5), Sampling(max_tokens=400)))
        next(free)
        before = backend.stats()["selected"]
        list(backend.submit(Request(prompt(5), Sampling(max_tokens=40), frozenset({2}), CHOICE)))
        assert backend.stats()["selected"] == before + 1  # its prompt is read by itself
        free.close()
