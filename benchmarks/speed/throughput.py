"""Rows `throughput`: tokens per second of one stream, of 4 and of 16 at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from speed.children import Child, Sides
from speed.lines import Line, median
from speed.machine import Facts
from speed.ours import Chatlocal
from speed.peers import ContinuousBatching, Generate, Pipeline, Vllm
from speed.settings import Settings

ROW = "throughput"
BATCHES = (1, 4, 16)
# Side, its method, and how the line names it.
PEERS = (
    ("generate", "in_turn", "generate, one after the other"),
    ("generate", "padded", "generate, one padded batch"),
    ("pipeline", "run", "HuggingFacePipeline"),
    ("generate_batch", "run", "transformers' generate_batch"),
    ("vllm", "run", "vLLM"),
    ("vllm wide", "run", "vLLM in float32"),
)


def measure(settings: Settings, facts: Facts, rounds: list[list[list[int]]], python: str | None) -> list[Line]:
    """`rounds` are as many prompts for each round as `BATCHES` needs; the first one is not counted."""
    makers: dict[str, Any] = {
        "chatlocal": Child(Chatlocal, settings),
        "plain": Child(Chatlocal, settings, drafting=False),
        "generate": Child(Generate, settings),
        "pipeline": Child(Pipeline, settings),
        "generate_batch": Child(ContinuousBatching, settings),
        "vllm": Vllm(python, settings, facts, BATCHES[-1]),
    }
    if python is not None and settings.dtype != "float32":
        # Where a processor cannot multiply bfloat16, vLLM is faster in float32.
        makers["vllm wide"] = Vllm(python, replace(settings, dtype="float32"), facts, BATCHES[-1])
    methods = [("chatlocal", "run"), ("plain", "run"), *((side, method) for side, method, _ in PEERS)]
    rates: dict[tuple[str, str, int], list[float]] = {}
    forwards: dict[int, float] = {}
    with Sides(makers) as sides:
        for number, prompts in enumerate(rounds):
            for batch, asked in zip(BATCHES, parts(prompts), strict=True):
                for side, method in methods:
                    if batch == 1 and method == "padded":
                        continue
                    took = sides.call(side, method, *((asked, settings.new) if number else (asked[:4], 4)))
                    if took is None:
                        continue
                    if number:
                        rates.setdefault((side, method, batch), []).append(took.rate)
                    if side == "chatlocal":
                        forwards[batch] = took.forwards / settings.new
        missing = sides.missing
    return [line for batch in BATCHES for line in _lines(batch, rates, forwards, missing)]


def parts(prompts: list[list[int]]) -> Iterator[list[list[int]]]:
    """Other prompts for each number of streams: none is one that a side has read."""
    used = 0
    for batch in BATCHES:
        yield prompts[used : used + batch]
        used += batch


def _lines(
    batch: int, rates: dict[tuple[str, str, int], list[float]], forwards: dict[int, float], missing: dict[str, str]
) -> list[Line]:
    what = "one stream" if batch == 1 else f"{batch} at once"
    ours = median(rates.get(("chatlocal", "run", batch), []))
    note = missing.get("chatlocal", f"{forwards[1]:.2f} forwards an id" if batch == 1 and forwards else "")
    lines = [
        Line(
            ROW, what, "tokens/s", ours, "chatlocal without drafts",
            median(rates.get(("plain", "run", batch), [])), note=missing.get("plain", note),
        )
    ]  # fmt: skip
    for side, method, name in PEERS:
        if batch == 1 and method == "padded":
            continue
        theirs = median(rates.get((side, method, batch), []))
        if theirs is None and side not in missing:
            continue
        shown = "generate" if batch == 1 and method == "in_turn" else name
        lines.append(Line(ROW, what, "tokens/s", ours, shown, theirs, note=missing.get(side, "")))
    return lines
