"""Kernels of our own for the CPU, where they were built and the processor has what they need (x86-64 with AVX2).

They are built with the package wherever a C++ compiler is found, and everything works without them, only slower.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch


@cache
def kernels() -> ModuleType | None:
    """The compiled module (its functions are told in _kernels.pyi); None where it cannot be used."""
    try:
        from chatlocal.engine.runtime.native import _kernels
    except ImportError:  # not built, or for another platform
        return None
    return _kernels if _kernels.runs_here() else None


def multiplies(weight: torch.Tensor) -> bool:
    """Whether `linear` takes this weight [out_features, in_features]."""
    return (
        kernels() is not None
        and type(weight.data) is torch.Tensor
        and weight.device.type == "cpu"
        and weight.dtype in (torch.bfloat16, torch.float32)
        and weight.ndim == 2
        and weight.is_contiguous()
        and weight.shape[1] % 16 == 0
    )


def linear(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """float32 [..., out_features]: rows [..., in_features] of any float type, times a weight that it `multiplies`."""
    module = kernels()
    assert module is not None
    count = rows.numel() // weight.shape[1]
    # The kernel changes the rows, so it gets its own.
    own = rows.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    out = torch.empty((*rows.shape[:-1], weight.shape[0]), dtype=torch.float32)
    wide = weight.dtype == torch.float32
    module.linear(
        weight.data_ptr(),
        wide,
        own.data_ptr(),
        count,
        weight.shape[1],
        weight.shape[0],
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
