"""One CUDA device in a few minutes: are its answers those of the CPU, how fast is it, how much memory does it take?

First the checks, in float32 on both (TF32 off): logits and greedy ids against the CPU; and on the device ids alone
against ids of a batch, drafts and prefix reuse on against off, and structured answers. Two ids whose logits on the CPU
are closer than 0.001 count as equal. Then the table of performance.py in `--dtype`, with --quick unless `--full`.
Writes gpu.json and gpu.png into build/bench, and fails where a check failed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import performance
import torch
from speed.children import Child, Sides
from speed.device_checks import Answers, Check, checks
from speed.report import table
from speed.settings import Settings, add_arguments, read_arguments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--full", action="store_true", help="the table with all rounds and lengths")
    parser.add_argument("--only", nargs="*", choices=performance.ROWS, default=list(performance.ROWS), metavar="ROW")
    parser.add_argument("--output", type=Path, default=performance.OUTPUT)
    arguments = parser.parse_args()
    settings = replace(read_arguments(arguments), device=arguments.device or "cuda", quick=not arguments.full)
    if str(settings.device).startswith("cuda") and not torch.cuda.is_available():
        sys.exit(
            "torch sees no CUDA device: install a CUDA build of torch and its driver. `--device cpu` runs everything on"
            " the CPU, which shows only that this script works."
        )
    arguments.output.mkdir(parents=True, exist_ok=True)
    found = compare(settings)
    for check in found:
        print(f"{'ok' if check.fine else 'FAILED':7} {check.what}: {check.found}", flush=True)
    report = performance.measure(settings, arguments.only, None, arguments.output)
    report["checks"] = [asdict(check) for check in found]
    print(table(report))
    performance.write(report, arguments.output, "gpu")
    if wrong := [check.what for check in found if not check.fine] + list(report["failed"]):
        sys.exit(f"Failed: {'; '.join(wrong)}")


def compare(settings: Settings) -> list[Check]:
    """The checks, in float32 on the CPU and on the device; each engine in a process of its own."""
    wide = replace(settings, dtype="float32")
    plain: dict[str, Any] = {"drafting": False, "prefix_reuse": False}
    makers = {
        "cpu": Child(Answers, replace(wide, device="cpu")),
        "device": Child(Answers, wide),
        "plain": Child(Answers, wide, **plain),
    }
    with Sides(makers) as sides:
        return list(checks(sides))


if __name__ == "__main__":
    main()
