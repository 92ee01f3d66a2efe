"""Products of bfloat16 layers that are widened for their own duration."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from chatlocal.engine.runtime.cpu_linear import widen_linears


@pytest.fixture(autouse=True)
def _slow_processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a processor that cannot multiply bfloat16, whatever this one is."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with torch.inference_mode():
        yield


def layer(dtype: torch.dtype = torch.bfloat16, bias: bool = True) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(64, 48, bias=bias, dtype=dtype)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, 64, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (3,), (40,), (2, 9), (2, 3, 5)])
def test_the_product_is_at_least_as_close_as_torchs_own(shape: tuple[int, ...], bias: bool) -> None:
    plain = layer(bias=bias)
    widened = copy.deepcopy(plain)
    assert widen_linears(widened)
    exact = nn.functional.linear(rows(*shape).double(), plain.weight.double(), plain.bias.double() if bias else None)
    ours, torchs = widened(rows(*shape)), plain(rows(*shape))
    assert (ours.dtype, ours.shape) == (torch.bfloat16, torchs.shape)
    assert (ours - exact).abs().max() <= (torchs - exact).abs().max()
    # The result of float32 sums is off by the rounding to bfloat16 alone: half a unit in the last of 8 bits.
    assert ((ours - exact).abs() <= exact.abs() * 2**-8).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_types_are_left_alone(dtype: torch.dtype) -> None:
    module = layer(dtype)
    assert not widen_linears(module)
    assert "forward" not in vars(module)


def test_processors_that_can_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    module = layer()
    assert not widen_linears(module)
    assert "forward" not in vars(module)


def test_layers_of_another_kind_are_left_alone() -> None:
    class Scaled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2

    module = Scaled(64, 48, dtype=torch.bfloat16)
    assert not widen_linears(module)


def test_quantized_weights_multiply_themselves() -> None:
    class Quantized(torch.Tensor):
        """Says that it is bfloat16, as the tensors of quantization libraries do."""

    module = layer()
    module.weight = nn.Parameter(module.weight.data.as_subclass(Quantized), requires_grad=False)
    assert not widen_linears(module)
    assert "forward" not in vars(module)


def test_a_layer_that_was_converted_afterwards_still_works() -> None:
    module = layer()
    widen_linears(module)
    module.float()
    torch.testing.assert_close(
        module(rows(5).float()), nn.functional.linear(rows(5).float(), module.weight, module.bias)
    )


def test_training_keeps_torchs_product() -> None:
    with torch.inference_mode(False):
        module, batch = layer(), torch.randn(5, 64, dtype=torch.bfloat16)
        widen_linears(module)
        module(batch).float().sum().backward()
        assert module.weight.grad is not None
        assert module.weight.grad.dtype == torch.bfloat16


def test_widening_twice_copying_and_pickling() -> None:
    module = layer()
    widen_linears(module)
    widen_linears(module)
    expected = module(rows(5))
    copied = copy.deepcopy(module)
    module.weight.zero_()
    assert torch.equal(copied(rows(5)), expected)
    assert torch.equal(pickle.loads(pickle.dumps(copied))(rows(5)), expected)
