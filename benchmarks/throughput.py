"""Tokens per second against transformers' own `generate`: one stream, and a batch of 16.

Both sides run the same weights in the same dtype, greedily, for the same number of new ids, in turn in one process;
the figure is the median of the rounds. `python benchmarks/throughput.py --help` lists what can be varied.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import transformers

from chatlocal.engine import Engine, Sampling, loading
from chatlocal.engine.runtime.backend import Request

TOPICS = (
    "the sea", "a lost key", "winter in Oslo", "the first train", "a garden", "two brothers", "an old clock", "bread",
    "the moon", "a long letter", "rain", "the market", "a blue door", "the last bus", "a lighthouse", "an island",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--new", type=int, default=48, help="new ids for each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    arguments = parser.parse_args()

    peer = loading.load(arguments.model, dtype=arguments.dtype, num_threads=arguments.threads)
    with Engine.load(arguments.model, dtype=arguments.dtype, num_threads=arguments.threads) as engine:
        prompts = [
            engine.render([{"role": "user", "content": f"Tell me a story about {topic}."}]).ids(engine.tokenizer)
            for topic in TOPICS
        ]
        rows = [
            measure(f"{size} at once", prompts[:size], engine, peer.model, arguments.new, arguments.rounds)
            for size in (1, 16)
        ]
    report = {
        "model": peer.name,
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "rows": rows,
    }
    print(json.dumps(report) if arguments.json else table(report))


def measure(
    name: str, prompts: list[tuple[int, ...]], engine: Engine, model: Any, new: int, rounds: int
) -> dict[str, Any]:
    """Tokens per second of both sides, after one round that is not counted."""
    sides: dict[str, Callable[[], None]] = {
        "chatlocal": lambda: ours(engine, prompts, new),
        "generate": lambda: theirs(model, prompts, new),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for round_number in range(rounds + 1):
        for side, run in sides.items():
            start = time.perf_counter()
            run()
            if round_number:
                rates[side].append(len(prompts) * new / (time.perf_counter() - start))
    medians = {side: statistics.median(values) for side, values in rates.items()}
    return {"name": name, **medians, "ratio": medians["chatlocal"] / medians["generate"]}


def ours(engine: Engine, prompts: list[tuple[int, ...]], new: int) -> None:
    def run(prompt: tuple[int, ...]) -> None:
        # No end ids, so that every answer has the same length.
        sampling = Sampling(temperature=0.0, max_tokens=new)
        for _ in engine.backend.submit(Request(prompt, sampling)):
            pass

    with ThreadPoolExecutor(len(prompts)) as threads:
        list(threads.map(run, prompts))


def theirs(model: Any, prompts: list[tuple[int, ...]], new: int) -> None:
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            do_sample=False,
            min_new_tokens=new,
            max_new_tokens=new,
            pad_token_id=0,
        )


def table(report: dict[str, Any]) -> str:
    head = "{model}, {dtype}, {threads} threads, {machine}, torch {torch}, transformers {transformers}".format(**report)
    lines = [head, f"{'tokens/s':14}{'chatlocal':>12}{'generate':>12}{'ratio':>8}"]
    lines += [f"{r['name']:14}{r['chatlocal']:12.1f}{r['generate']:12.1f}{r['ratio']:8.2f}" for r in report["rows"]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
