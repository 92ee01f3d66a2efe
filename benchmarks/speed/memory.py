"""Rows `memory`: the most memory that a process took, beyond its weights, its cache and what the imports take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from speed.children import Child, Sides
from speed.lines import Line
from speed.machine import Facts
from speed.settings import Settings

ROW = "memory"
STREAMS = 16


STATUS = Path("/proc/self/status")


def peak() -> int:
    """The most resident memory that this process has had, in bytes."""
    if STATUS.exists():
        # Not ru_maxrss, which on Linux may be that of the process that started this one.
        return _status("VmHWM")
    if sys.platform == "win32":
        raise NotImplementedError("no peak of the resident memory on Windows")
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def resting() -> int | None:
    """The resident memory of this process now, in bytes; None where the system does not say."""
    return _status("VmRSS") if STATUS.exists() else None


def _status(name: str) -> int:
    return 1024 * int(next(row for row in STATUS.read_text().splitlines() if row.startswith(name)).split()[1])


class Imports:
    """What a side imports to run this model, and nothing loaded."""

    def __init__(self, folder: str, ours: bool) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: F401

        if ours:
            pass
        # The class of the model brings its module, which loading would.
        AutoModelForCausalLM._model_mapping[type(AutoConfig.from_pretrained(folder))]

    def peak(self) -> int:
        return peak()


class Measured:
    """A side that says what its process took at most so far. Imports are within."""

    def __init__(self, side: str, settings: Settings) -> None:
        from speed.ours import Chatlocal
        from speed.peers import Generate

        self._ours = side == "chatlocal"
        self._side: Any = Chatlocal(settings) if self._ours else Generate(settings)

    def loaded(self) -> int:
        return peak()

    def run(self, prompts: list[list[int]], new: int) -> int:
        (self._side.run if self._ours else self._side.padded)(prompts, new)
        return peak()

    def resting(self) -> int | None:
        return resting()

    def device(self) -> int:
        """The most that was allocated on the GPU; 0 without one."""
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def measure(settings: Settings, facts: Facts, prompts: list[list[int]]) -> list[Line]:
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    cache = facts.cache * sum(len(prompt) + settings.new for prompt in prompts)
    on_device = facts.machine["device"] != "cpu"
    for side in ("chatlocal", "generate"):
        makers = {
            "imports": Child(Imports, facts.folder, side == "chatlocal", fresh=True),
            "side": Child(Measured, side, settings, fresh=True),
        }
        with Sides(makers) as sides:
            imports = sides.call("imports", "peak")
            loaded = sides.call("side", "loaded")
            run = sides.call("side", "run", prompts, settings.new)
            rests = sides.call("side", "resting")
            device = sides.call("side", "device")
            reasons = list(sides.missing.values())
        if reasons:
            missing[side] = reasons[0]
            continue
        held = device if on_device else run - imports
        found[side] = {
            "beyond": (held - facts.weights - cache) / 1e6,
            "loaded": (loaded - imports - facts.weights) / 1e6,
            "resting": None if rests is None or on_device else (rests - imports - facts.weights - cache) / 1e6,
            "imports": imports / 1e6,
        }
    ours, theirs = found.get("chatlocal", {}), found.get("generate", {})
    sizes = f"weights {facts.weights / 1e6:.0f} MB, cache {cache / 1e6:.0f} MB"
    if ours:
        sizes += f", imports {ours['imports']:.0f} MB"
    failed = missing.get("chatlocal", missing.get("generate", ""))
    lines = []
    for key, what, note in (
        ("beyond", f"peak memory beyond weights, cache and imports, {STREAMS} streams", sizes),
        ("loaded", "the same once it is loaded", "the file that is read counts too"),
        ("resting", "the same after the answers", "what is held then, no peak"),
    ):
        lines.append(
            Line(
                ROW,
                what,
                "MB",
                ours.get(key),
                "generate, one padded batch",
                theirs.get(key),
                "less",
                failed or note,
            )
        )
    return lines
