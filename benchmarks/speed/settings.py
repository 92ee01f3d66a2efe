"""What a run measures with: the model, how it is loaded, and how much of everything there is."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """`length` is how many positions the model has; it is known once the model was looked at."""

    model: str | None
    dtype: str
    device: str | None
    threads: int | None
    quick: bool = False
    length: int = 0

    @property
    def load(self) -> dict[str, Any]:
        """The options of Engine.load and loading.load."""
        return {"dtype": self.dtype, "device": self.device, "num_threads": self.threads}

    def least(self, full: int, quick: int) -> int:
        """How much of something to measure; with --quick less of it."""
        return quick if self.quick else full

    @property
    def rounds(self) -> int:
        return self.least(3, 1)

    @property
    def new(self) -> int:
        """New ids for each answer."""
        return self.least(48, 12)

    def tokens(self, wanted: int) -> int:
        """A prompt's length: the one wanted, where the model has that many positions twice."""
        return min(wanted, self.length // 2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default=None, help="cpu, cuda, mps (default: what Engine.load chooses)")
    parser.add_argument("--threads", type=int, default=None, help="threads of torch's (default: Engine.load's rule)")
    parser.add_argument("--quick", action="store_true", help="one round and less of everything: a few minutes")


def read_arguments(arguments: argparse.Namespace) -> Settings:
    return Settings(arguments.model, arguments.dtype, arguments.device, arguments.threads, arguments.quick)
