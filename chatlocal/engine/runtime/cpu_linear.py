"""Fast bfloat16 layers on processors that cannot multiply bfloat16.

Without AVX-512 BF16 or AMX, torch multiplies a bfloat16 matrix by more than a few rows in a plain loop: measured on an
AVX2 machine, [512, 576] x [576, 1536] takes 170 ms in bfloat16 and 11 ms in float32. Reading one row is a different
matter: there half the bytes means half the time. So the weights stay bfloat16. Our own kernels widen them in registers
(12 ms for the same product, and for up to 4 rows hardly more than for one). Where these are not there, a call with
several rows widens the layer's weights for its own duration (13 ms, with float32 sums as before), a block of rows at a
time: what stays in the processor's cache is not written to memory and read again (measured on an output matrix of
49,152 x 576 and 8 rows: 16 ms, and 70 ms in one piece).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from chatlocal.engine.runtime import native

# Up to this many rows torch's own bfloat16 product is as fast as widening the weights (measured as above).
_FEW_ROWS = 6
# Weights are widened so many rows at a time, 4.7 MB for rows of 576.
_BLOCK = 2048


def multiplies_bfloat16() -> bool:
    """Whether the processor has bfloat16 products that torch uses."""
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def multiplies_tiles() -> bool:
    """Whether the processor has tiles of bfloat16 (AMX) and torch uses them: nothing else is as fast there."""
    return multiplies_bfloat16() and torch.cpu._is_amx_tile_supported()


def widen_linears(model: nn.Module) -> bool:
    """Let every bfloat16 nn.Linear on the CPU multiply in float32 where that is faster; says whether it did.

    Nothing is changed where the processor has bfloat16 products or the layer is not exactly an nn.Linear.
    """
    if multiplies_bfloat16():
        return False
    layers = [module for module in model.modules() if type(module) is nn.Linear and _narrow(module)]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    return bool(layers)


def _narrow(layer: nn.Linear) -> bool:
    # A quantized weight is a tensor class of its own that says bfloat16 too, and multiplies itself.
    return (
        type(layer.weight.data) is torch.Tensor
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.bfloat16
    )


def _forward(layer: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
    # rows: [..., in_features]
    if torch.is_grad_enabled() or not _narrow(layer):
        return functional.linear(rows, layer.weight, layer.bias)
    if native.multiplies(layer.weight):
        product = native.linear(rows, layer.weight)
    elif rows.numel() <= _FEW_ROWS * layer.in_features:
        return functional.linear(rows.to(layer.weight.dtype), layer.weight, layer.bias).to(rows.dtype)
    else:
        wide = rows.float()
        blocks = [functional.linear(wide, block.float()) for block in torch.split(layer.weight, _BLOCK)]
        product = blocks[0] if len(blocks) == 1 else torch.cat(blocks, -1)
    return (product if layer.bias is None else product + layer.bias.float()).to(rows.dtype)
