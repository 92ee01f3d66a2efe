"""What a call means where it says nothing."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import GenerationConfig

from chatlocal.engine.generation_defaults import DEFAULT_MAX_TOKENS, complete, end_ids
from chatlocal.engine.messages import Sampling

SAMPLES = GenerationConfig(do_sample=True, temperature=0.6, top_p=0.9, top_k=40, min_p=0.05, repetition_penalty=1.1)


def test_without_a_word_from_anyone_it_is_greedy() -> None:
    for config in (None, GenerationConfig(), GenerationConfig(do_sample=False, temperature=0.6, top_p=0.9)):
        sampling = complete(Sampling(), config, 5000)
        assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 1.0, 0, 0)
        assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.0, 0, 0)
        assert sampling.max_tokens == DEFAULT_MAX_TOKENS


def test_the_configuration_is_respected_where_the_call_says_nothing() -> None:
    sampling = complete(Sampling(), SAMPLES, 5000)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.6, 0.9, 40, 0.05)
    assert sampling.repetition_penalty == 1.1


@pytest.mark.parametrize("zero", [0, 0.0])
def test_zero_is_greedy_and_leaves_the_configured_cuts_out(zero: float) -> None:
    sampling = complete(Sampling(temperature=zero), SAMPLES, 5000)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 1.0, 0, 0)
    assert sampling.repetition_penalty == 1.1


def test_the_calls_own_settings_go_first() -> None:
    own = Sampling(temperature=0.3, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, max_tokens=7, seed=5)
    sampling = complete(own, GenerationConfig(**{**SAMPLES.to_diff_dict(), "max_new_tokens": 99}), 5000)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.3, 1.0, 0, 0.0)
    assert (sampling.repetition_penalty, sampling.max_tokens, sampling.seed) == (1.0, 7, 5)


def test_sampling_without_a_configured_temperature_is_at_one() -> None:
    assert complete(Sampling(), GenerationConfig(do_sample=True), 100).temperature == 1.0


@pytest.mark.parametrize(
    ("asked", "configured", "room", "expected"),
    [
        (None, None, 10_000, DEFAULT_MAX_TOKENS),
        (None, 30, 10_000, 30),
        (None, 30, 12, 12),
        (100, 30, 10_000, 100),
        (100, None, 4, 4),
    ],
)
def test_the_limit_is_the_calls_the_configurations_and_the_rooms(
    asked: int | None, configured: int | None, room: int, expected: int
) -> None:
    config = GenerationConfig(max_new_tokens=configured)
    assert complete(Sampling(max_tokens=asked), config, room).max_tokens == expected


def test_the_configuration_is_only_read(recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture) -> None:
    before = copy.deepcopy(SAMPLES.to_dict())
    for temperature in (None, 0, 0.0, 0.7):
        complete(Sampling(temperature=temperature), SAMPLES, 100)
    assert SAMPLES.to_dict() == before
    assert not recwarn.list
    assert not caplog.records


@pytest.mark.parametrize(
    ("tokenizer", "configured", "family", "expected"),
    [
        (128001, [128001, 128009], (128008,), {128001, 128008, 128009}),
        (2, 3, (), {2, 3}),
        (2, None, (), {2}),
        (None, None, (5,), {5}),
        (None, [], (), set()),
        (0, 0, (0,), {0}),
        ([2, 4], (7,), (), {2, 4, 7}),
    ],
)
def test_end_ids_are_those_of_all_three(tokenizer: Any, configured: Any, family: Any, expected: set[int]) -> None:
    found = end_ids(SimpleNamespace(eos_token_id=tokenizer), GenerationConfig(eos_token_id=configured), family)
    assert found == expected
    assert end_ids(SimpleNamespace(), None, family) == set(family)
