"""How fast memory can be read: the limit of decoding, since every id has to read all weights."""

from __future__ import annotations

import time

import torch

from chatlocal.engine.devices import choose_device, set_threads
from speed.settings import Settings

# Larger than any processor's cache.
_BYTES = 1 << 30


class Memory:
    """Reads a gigabyte over and over with as many threads as the engine has."""

    def __init__(self, settings: Settings) -> None:
        set_threads(settings.threads)
        self._device, _ = choose_device(settings.device)
        self._data = torch.ones(_BYTES // 4, dtype=torch.float32, device=self._device)

    def bandwidth(self) -> float:
        """Bytes per second of the fastest of several passes."""
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            self._data.sum().item()
            best = min(best, time.perf_counter() - start)
        return _BYTES / best
