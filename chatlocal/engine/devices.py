"""Where a model runs and in which number format: the rules for device, dtype and threads.

Device: the one asked for, else CUDA (ROCm goes by that name too), else Apple's MPS, else the CPU.

Dtype: the one asked for, else by what the device can do, whatever format the checkpoint is stored in:
- bfloat16 where the device has it: half the memory of float32 with its range. Decoding is bound by memory bandwidth,
  so this holds on CPUs as well (SmolLM2-135M on a CPU with AVX2 only: 26 tokens/s against 17 in float32).
- else float16 on CUDA, float32 on MPS.
A quantized checkpoint (GPTQ, AWQ, FP8, ...; not GGUF, which is dequantized) keeps the dtype it was made for.

Threads: torch has one count for the whole process. Unless OMP_NUM_THREADS or `num_threads` says otherwise it is
lowered, never raised, to the physical cores that this process may use: with more, decoding gets slower. In a child that
was forked from a process with torch in it, it is 1: there torch may wait for ever for threads that were not copied.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chatlocal.engine.errors import ModelLoadError, UnsupportedInput

if TYPE_CHECKING:
    import torch

_DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "float32": "float32",
    "fp32": "float32",
    "float": "float32",
    "float64": "float64",
}

# Whether this process was forked from one that had torch in it.
_forked_with_torch = False


def _note_fork() -> None:
    global _forked_with_torch
    _forked_with_torch = "torch" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def choose_device(device: str | torch.device | None = None) -> tuple[torch.device, str]:
    """The device and a note why. UnsupportedInput for an unknown name, ModelLoadError for one that is not there."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device is None or device == "auto":
        if cuda:
            return torch.device("cuda", torch.cuda.current_device()), "device cuda: the first choice, and it is there"
        if mps:
            return torch.device("mps"), "device mps: there is no CUDA device"
        return torch.device("cpu"), "device cpu: there is neither a CUDA nor an MPS device"
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedInput(_unknown_device(device)) from error
    if chosen.type not in ("cpu", "cuda", "mps"):
        raise UnsupportedInput(_unknown_device(device))
    if chosen.type == "cuda":
        if not cuda:
            raise ModelLoadError(
                f"device={str(device)!r} was asked for and torch sees no CUDA device: install a CUDA (or ROCm) build of"
                " torch and its driver, or leave `device` out."
            )
        chosen = torch.device("cuda", torch.cuda.current_device() if chosen.index is None else chosen.index)
        if chosen.index >= torch.cuda.device_count():
            raise ModelLoadError(
                f"device={str(device)!r} was asked for and there are {torch.cuda.device_count()} CUDA devices, counted"
                " from cuda:0: choose one of them."
            )
    if chosen.type == "mps" and not mps:
        raise ModelLoadError("device='mps' was asked for and torch sees no Apple GPU here: leave `device` out.")
    return chosen, f"device {chosen}: asked for"


def _unknown_device(device: object) -> str:
    return f"Unknown device {str(device)!r}: use 'cuda', 'cuda:N', 'mps', 'cpu', or leave `device` out."


def choose_dtype(
    dtype: str | torch.dtype | None, device: torch.device, *, quantized: bool = False
) -> tuple[torch.dtype | None, str]:
    """The dtype and a note why; None where a quantized checkpoint decides itself. UnsupportedInput if unknown."""
    import torch

    if dtype is not None and dtype != "auto":
        chosen = dtype if isinstance(dtype, torch.dtype) else getattr(torch, _DTYPES.get(dtype, "-"), None)
        if not isinstance(chosen, torch.dtype) or str(chosen).removeprefix("torch.") not in _DTYPES.values():
            raise UnsupportedInput(f"Unknown dtype {str(dtype)!r}: use one of {', '.join(_DTYPES)}, or leave it out.")
        return chosen, f"dtype {_name(chosen)}: asked for"
    if quantized:
        return None, "dtype: as the quantized checkpoint says"
    if _has_bfloat16(device):
        return torch.bfloat16, f"dtype bfloat16: {device.type} has it, and it takes half the memory of float32"
    chosen = torch.float16 if device.type == "cuda" else torch.float32
    return chosen, f"dtype {_name(chosen)}: this {device.type} device has no bfloat16"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _has_bfloat16(device: torch.device) -> bool:
    import torch

    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)  # Metal has had bfloat16 since then
    return True


def set_threads(num_threads: int | None = None) -> str:
    """Set torch's thread count for the whole process by the rule above; returns a note. UnsupportedInput below 1.

    A forked child gets as many as `num_threads` asks for too, which is right where its parent had torch and did not use
    it before the fork.
    """
    import torch

    if num_threads is not None:
        if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
            raise UnsupportedInput(f"num_threads must be a whole number of at least 1, got {num_threads!r}.")
        torch.set_num_threads(num_threads)
        return f"threads {num_threads}: asked for"
    if _forked_with_torch:
        # A thread that has computed in parallel before the fork waits for its helpers (GNU OpenMP), and where several
        # threads come to torch's pool at once torch fails ("Invalid thread pool!"), until somebody sets the count.
        torch.set_num_threads(1)
        return "threads 1: torch's own do not outlive a fork; start the process with 'spawn' for more"
    now = torch.get_num_threads()
    if os.environ.get("OMP_NUM_THREADS"):
        return f"threads {now}: OMP_NUM_THREADS is set"
    usable = usable_cores()
    if now > usable:
        torch.set_num_threads(usable)
        return f"threads {usable}: the physical cores that this process may use"
    return f"threads {now}: as torch has it"


def usable_cores() -> int:
    """Physical cores among the CPUs that this process may run on, within its container's quota; at least 1."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    cores = {_siblings(cpu) for cpu in cpus}
    return max(1, min(len(cores), _quota() or len(cores)))


def _siblings(cpu: int) -> str:
    """The hardware threads that share this CPU's core, as Linux writes them ("0,64"); itself where that is unknown."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int | None:
    """CPUs that cgroup v2 allows, "QUOTA PERIOD" in microseconds, or None for no limit."""
    try:
        found = re.fullmatch(r"(\d+) (\d+)", Path("/sys/fs/cgroup/cpu.max").read_text().strip())
    except OSError:
        return None
    return max(1, int(found[1]) // int(found[2])) if found else None
