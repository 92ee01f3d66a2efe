"""How many positions the cache may have: a number, or a share of the memory that is free."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from chatlocal.engine.errors import UnsupportedInput

# Shares of the free memory if nothing is said. A CPU's memory belongs to other programs too.
_SHARE = {"cpu": 0.5, "cuda": 0.8}
_OTHER_SHARE = 0.5

# Where the system does not say what is free: little enough for any machine that a model was loaded on.
_UNKNOWN = 2 * 1024**3


def positions(cache_tokens: Any, *, position_bytes: int, device: torch.device, most: int) -> int:
    """How many positions the cache may have, `most` at most.

    `cache_tokens`: an int is a number of positions, a float in (0, 1] a share of the memory that is free now, None the
    share that suits the device. `position_bytes`: what one takes; 0 where that is not known, and then only a number
    limits it. UnsupportedInput for anything else.
    """
    if isinstance(cache_tokens, bool) or not isinstance(cache_tokens, int | float | None):
        raise _refusal(cache_tokens)
    if isinstance(cache_tokens, int):
        if cache_tokens < 1:
            raise _refusal(cache_tokens)
        return min(cache_tokens, most)
    share = _SHARE.get(device.type, _OTHER_SHARE) if cache_tokens is None else cache_tokens
    if not 0 < share <= 1:
        raise _refusal(cache_tokens)
    if not position_bytes:
        return most
    return max(1, min(int(share * free_bytes(device)) // position_bytes, most))


def free_bytes(device: torch.device) -> int:
    """The memory of a device that nobody uses, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_system_bytes(), _group_bytes())


def _system_bytes() -> int:
    """What the system says can be had without swapping (Linux), else half of what the machine has."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _group_bytes() -> int:
    """What the control group (version 2, a container's) leaves; no limit where there is none."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        return 2**62 if limit == "max" else int(limit) - int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return 2**62


def _refusal(cache_tokens: object) -> UnsupportedInput:
    return UnsupportedInput(
        f"cache_tokens is a number of positions, at least 1, or a share of the free memory in (0, 1], got"
        f" {cache_tokens!r}."
    )
