"""Layers that torchao has quantized: still nn.Linear to look at, with a weight that is no plain tensor."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn import functional

from chatlocal.engine.runtime.cpu_linear import multiplies_bfloat16


class QuantizedLinear(nn.Linear):
    """An nn.Linear whose weight takes part in nothing but its own product.

    Such a weight calls itself bfloat16, and what the engine does with matrices of that type would fail on it. 8-bit
    weights are unpacked for each product; where the processor has no bfloat16 products that happens in float32
    (measured on an AVX2 machine: 1.5 times as many tokens/s with one request and with 16 of them).
    """

    wide = False

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        # rows: [..., in_features]
        if not self.wide:
            return functional.linear(rows, self.weight, self.bias)
        bias = None if self.bias is None else self.bias.float()
        return functional.linear(rows.float(), self.weight, bias).to(rows.dtype)


def set_apart(model: nn.Module) -> None:
    """Make every nn.Linear with a quantized weight a QuantizedLinear, in place."""
    widens = not multiplies_bfloat16()
    for module in model.modules():
        if type(module) is not nn.Linear or not hasattr(module.weight.data, "__tensor_flatten__"):
            continue
        module.__class__ = QuantizedLinear
        weight, unpacked = module.weight, type(module.weight.data).__name__ == "Int8Tensor"
        on_cpu = weight.device.type == "cpu"
        cast(QuantizedLinear, module).wide = widens and unpacked and on_cpu and weight.dtype == torch.bfloat16
