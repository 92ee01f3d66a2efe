"""Decoder layers in kernels: what they compute, and which models they are for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from chatlocal.engine.runtime import fused_layers, native
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.fused_layers import FusedLayers
from chatlocal.engine.runtime.packed_runner import PackedRunner
from chatlocal.engine.runtime.runner_choice import choose_runner
from chatlocal.engine.runtime.sequence import Sequence
from tests.engine.runtime.architectures import SIZES, architecture
from tests.engine.runtime.running import prompt

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="the kernels were not built for this processor")

WIDE = {**SIZES, "hidden_size": 64, "intermediate_size": 112, "head_dim": 16, "max_position_embeddings": 4096}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama many heads": {"num_attention_heads": 32, "num_key_value_heads": 1},
    "llama one head for each": {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 80},
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "llama3 positions": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {},
    "granite": {"residual_multiplier": 1.0, "attention_multiplier": 0.3, "logits_scaling": 4.0},
}


def model_of(name: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    model = architecture(name.split()[0].replace("llama3", "llama"), WIDE, **{**MODELS.get(name, {}), **settings})
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.normal_(1, 0.3)
            if "bias" in key:
                parameter.normal_(0, 0.3)
    return model.to(dtype)


@pytest.fixture(params=["plain", "avx512", "paired"])
def formats(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formats of one kind of processor, where this one runs them."""
    kernels = native.kernels()
    assert kernels is not None
    kinds = {
        "plain": {torch.float32: native.Format.WIDE, torch.bfloat16: native.Format.WIDENED},
        "avx512": {torch.float32: native.Format.WIDE_512, torch.bfloat16: native.Format.WIDENED_512},
        "paired": {torch.float32: native.Format.WIDE_512, torch.bfloat16: native.Format.PAIRED},
    }
    chosen = kinds[request.param]
    if not all(kernels.runs_here(one) for one in chosen.values()):
        pytest.skip(f"this processor is not of the kind {request.param}")
    monkeypatch.setattr(native, "format_of", chosen.__getitem__)
    monkeypatch.setattr(fused_layers, "multiplies_tiles", lambda: False)


def packed(model: Any) -> PackedRunner:
    runner = choose_runner(model).runner
    assert isinstance(runner, PackedRunner)
    return runner


def sequence_of(length: int, seed: int = 0) -> Sequence:
    return Sequence(Request(prompt(length, seed)))


def logits_of(model: Any, ids: list[int], rows: int) -> torch.Tensor:
    """What the model itself gives behind the last ids."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0, -rows:].float()
    return logits


@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_those_of_the_model(formats: None, name: str) -> None:
    model = model_of(name)
    runner = packed(model)
    sequences = [sequence_of(length, seed) for seed, length in enumerate((30, 1, 7, 64))]
    with torch.inference_mode():
        first = [(sequence, max(1, sequence.pending - 3)) for sequence in sequences]
        runner.forward(first)
        sequences[1].ids += [5, 6]
        logits = runner.forward([(sequence, sequence.pending) for sequence in sequences])
    for row, sequence in zip(logits, sequences, strict=True):
        torch.testing.assert_close(row, logits_of(model, sequence.ids, 1)[0], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("length", [511, 512, 513, 1100])
def test_long_contexts_cross_the_borders_of_chunks(formats: None, name: str, length: int) -> None:
    model = model_of(name)
    runner = packed(model)
    sequence = sequence_of(length)
    expected = logits_of(model, sequence.ids, 4)
    sequence.draft = sequence.ids[-3:]
    del sequence.ids[-3:]
    with torch.inference_mode():
        runner.forward([(sequence, sequence.pending - 6)])
        logits = runner.forward([(sequence, sequence.pending)])
    torch.testing.assert_close(logits, expected, atol=3e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_sequence_has_the_same_bits_alone_together_and_in_pieces(
    formats: None, dtype: torch.dtype, threads: int
) -> None:
    model = model_of("qwen3", dtype)
    runner = packed(model)
    lengths = (600, 3, 41, 1030)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            alone = []
            for seed, length in enumerate(lengths):
                sequence = sequence_of(length, seed)
                alone.append(runner.forward([(sequence, length)])[0])
                runner.release(sequence)
            sequences = [sequence_of(length, seed) for seed, length in enumerate(lengths)]
            while any(sequence.pending > 1 for sequence in sequences):
                work = [(one, min(one.pending - 1, 130)) for one in sequences if one.pending > 1]
                runner.forward(work)
            together = runner.forward([(sequence, 1) for sequence in sequences])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.stack(alone), together)


def test_bfloat16_is_nearer_to_float32_than_the_model_itself(formats: None) -> None:
    exact, narrow = model_of("llama"), model_of("llama", torch.bfloat16)
    exact.load_state_dict({key: value.float() for key, value in narrow.state_dict().items()})
    sequence = sequence_of(50)
    with torch.inference_mode():
        ours = packed(narrow).forward([(sequence, 50)])
    expected = logits_of(exact, sequence.ids, 1)
    assert (ours - expected).square().mean() < (logits_of(narrow, sequence.ids, 1) - expected).square().mean()


def test_the_model_is_as_it_was_afterwards() -> None:
    model = model_of("llama")
    before = [set(vars(module)) for module in model.modules()]
    ids = torch.tensor([prompt(9)])
    expected = model(ids).logits
    runner = packed(model)
    sequence = sequence_of(9)
    with torch.inference_mode():
        runner.forward([(sequence, 9)])
    assert [set(vars(module)) for module in model.modules()] == before
    assert torch.equal(model(ids).logits, expected)


def test_a_forward_that_fails_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    runner = packed(model)
    monkeypatch.setattr(model.model.norm, "forward", lambda hidden: 1 / 0)
    sequence = sequence_of(5)
    with pytest.raises(ZeroDivisionError), torch.inference_mode():
        runner.forward([(sequence, 5)])
    assert sequence.cached == 0
    assert all("forward" not in vars(layer) for layer in model.model.layers)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("gemma2", {}, "post_feedforward_layernorm"),
        ("gemma", {"hidden_act": "silu", "hidden_activation": "silu"}, "something else|epsilon"),
        ("phi3", {}, "dropout|q_proj"),
        ("mixtral", {"sliding_window": None}, "mlp|gate"),
        ("llama", {"hidden_act": "gelu"}, "SiLU"),
        ("llama", {"head_dim": 8}, "multiples of 16"),
        ("granite", {"residual_multiplier": 0.5}, "something else"),
        ("gpt2", {}, "usually"),
        ("olmo", {}, "norm"),
        ("stablelm", {"partial_rotary_factor": 0.5}, "dropout"),
    ],
)
def test_other_layers_are_left_to_the_model(name: str, settings: dict[str, Any], reason: str) -> None:
    sizes = {} if name == "gpt2" else WIDE
    found = FusedLayers.of(architecture(name, sizes, **settings))
    assert isinstance(found, str)
    assert any(part in found for part in reason.split("|")), found


def test_other_types_of_weights_are_left_to_the_model() -> None:
    assert isinstance(FusedLayers.of(model_of("llama", torch.float16)), str)
    mixed = model_of("llama")
    mixed.model.layers[1].mlp.up_proj.bfloat16()
    assert isinstance(FusedLayers.of(mixed), str)


def test_processors_with_tiles_of_bfloat16_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert isinstance(FusedLayers.of(model_of("llama", torch.bfloat16)), str)
    assert isinstance(FusedLayers.of(model_of("llama")), FusedLayers)


def test_they_can_be_turned_off() -> None:
    assert not isinstance(choose_runner(model_of("llama"), fused_layers=False).runner, PackedRunner)
