"""Kernels of our own for the CPU, where they were built and the processor has what they need (x86-64 with AVX2, and
AVX-512 where it is there).

They are built with the package wherever a C++ compiler is found, and everything works without them, only slower.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from types import ModuleType

import torch


class Format(IntEnum):
    """How weights are multiplied; formats.h tells what each is."""

    WIDE = 0
    WIDENED = 1
    WIDE_512 = 2
    WIDENED_512 = 3
    PAIRED = 4


# The fastest first.
FORMATS = {
    torch.bfloat16: (Format.PAIRED, Format.WIDENED_512, Format.WIDENED),
    torch.float32: (Format.WIDE_512, Format.WIDE),
}


@cache
def kernels() -> ModuleType | None:
    """The compiled module (its functions are told in _kernels.pyi); None where it cannot be used."""
    try:
        from chatlocal.engine.runtime.native import _kernels
    except ImportError:  # not built, or for another platform
        return None
    return _kernels if _kernels.runs_here(Format.WIDE) else None


@cache
def format_of(dtype: torch.dtype) -> Format:
    """How weights of this type are multiplied here. Only where there are kernels, for bfloat16 and float32."""
    module = kernels()
    assert module is not None
    return next(one for one in FORMATS[dtype] if module.runs_here(one))


def multiplies(weight: torch.Tensor) -> bool:
    """Whether `linear` takes this weight [out_features, in_features]."""
    return (
        kernels() is not None
        and type(weight.data) is torch.Tensor
        and weight.device.type == "cpu"
        and weight.dtype in FORMATS
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
    module.linear(
        weight.data_ptr(),
        format_of(weight.dtype),
        own.data_ptr(),
        count,
        weight.shape[1],
        weight.shape[0],
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
