"""The logits of a few ids alone: only their rows of the output matrix are multiplied.

A grammar often leaves a handful of ids, and the output matrix is a fifth to a quarter of a small model's weights. The
model's own code does the rest: what it does to logits behind the matrix (scaling, capping) it does to the few as well.
Whether that holds, and up to how many ids it is faster, is tried once for each model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from chatlocal.engine.runtime import native
from chatlocal.engine.runtime.sequence import Sequence

# Numbers of ids that are timed; above the last one gathering the rows costs more than multiplying them all.
_SIZES = (64, 512, 1024, 2048, 4096, 8192)
_REPEATS = 5
# A selection must be this much faster than the whole: below that it is noise.
_GAIN = 0.8


class SelectiveHead:
    """`vocabulary` is the width of the model's whole logits, `limit` up to how many ids selecting pays."""

    def __init__(self, head: nn.Linear, vocabulary: int, limit: int) -> None:
        self._head = head
        self._vocabulary = vocabulary
        self.limit = limit

    @classmethod
    def fitting(cls, model: Any, vocabulary: int, probe: Callable[[], torch.Tensor]) -> SelectiveHead | None:
        """The head of a model; None where its logits are not what a plain matrix gives, or selecting never pays.

        `probe` gives logits [rows, vocabulary] of the same ids at each call.
        """
        head = _plain_head(model)
        if head is None or head.out_features != vocabulary:
            return None
        limit = _break_even(head)
        selective = cls(head, vocabulary, limit)
        return selective if limit and selective._agrees(probe) else None

    @contextmanager
    def only(self, ids: torch.Tensor) -> Iterator[None]:
        """Inside, the model's logits are those of `ids` (int64 [n]), in their order."""
        before = self._head.__dict__.get("forward")
        self._head.__dict__["forward"] = partial(_rows, self._head, ids)
        try:
            yield
        finally:
            if before is None:
                del self._head.__dict__["forward"]
            else:
                self._head.__dict__["forward"] = before

    def spread(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The logits [rows, n] of `ids` as [rows, vocabulary], -inf elsewhere."""
        whole = logits.new_full((len(logits), self._vocabulary), -torch.inf)
        whole[:, ids] = logits
        return whole

    def worthwhile(self, sequences: list[Sequence]) -> torch.Tensor | None:
        """The ids, int64 [n], that any of these sequences may have next, where they are known and few enough."""
        if not sequences or any(one.mask is None or one.draft for one in sequences):
            return None
        allowed = torch.stack([one.mask for one in sequences if one.mask is not None]).any(0)
        ids = allowed.nonzero()[:, 0]
        return ids.to(self._head.weight.device) if len(ids) <= self.limit else None

    def _agrees(self, probe: Callable[[], torch.Tensor]) -> bool:
        """Whether the selected logits are those of the whole head."""
        whole = probe()
        ids = torch.randperm(self._vocabulary, generator=torch.Generator().manual_seed(0))[: min(64, self.limit)]
        ids = ids.to(whole.device)
        try:
            with self.only(ids):
                selected = probe()
        except Exception:  # the model looks at the width of its logits
            return False
        if selected.shape != (len(whole), len(ids)):
            return False
        narrow = self._head.weight.dtype in (torch.bfloat16, torch.float16)
        # Two rows of one product may be summed in another order; a scale or cap that is missing is far beyond this.
        return torch.allclose(selected, whole[:, ids], rtol=0.02 if narrow else 1e-4, atol=float(whole.std()) * 0.02)


def _rows(head: nn.Linear, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    # hidden: [..., in_features]
    weight = head.weight[ids]
    if native.multiplies(weight):
        product = native.linear(hidden, weight).to(hidden.dtype)
        return product if head.bias is None else product + head.bias[ids]
    return functional.linear(hidden.to(weight.dtype), weight, None if head.bias is None else head.bias[ids])


def _plain_head(model: Any) -> nn.Linear | None:
    """The output matrix, where it is one: not quantized, not adapted, not kept on another device."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if type(head) is not nn.Linear or type(head.weight.data) is not torch.Tensor or hasattr(head, "_hf_hook"):
        return None
    floating = head.weight.is_floating_point() and head.weight.element_size() > 1
    return head if floating and head.weight.device == model.get_input_embeddings().weight.device else None


@torch.inference_mode()
def _break_even(head: nn.Linear) -> int:
    """The largest number of ids for which selecting was faster; 0 for none."""
    generator = torch.Generator().manual_seed(0)
    weight = head.weight
    hidden = torch.randn(1, head.in_features, generator=generator).to(weight.device, weight.dtype)
    whole = _seconds(lambda: head(hidden), weight.device)
    best = 0
    for size in _SIZES:
        if size > head.out_features // 2:
            break
        ids = torch.randperm(head.out_features, generator=generator)[:size].to(weight.device)
        if _seconds(partial(_rows, head, ids, hidden), weight.device) < _GAIN * whole:
            best = size
    return best


def _seconds(run: Callable[[], Any], device: torch.device) -> float:
    """The least time of a few runs."""
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times)
