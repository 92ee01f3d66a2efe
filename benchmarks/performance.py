"""How fast the engine is: one table of ratios, both sides of each in one run on one machine.

Rows: tokens per second of 1, 4 and 16 streams against transformers' `generate` and `generate_batch`, LangChain's
HuggingFacePipeline and (`--vllm-python`, see vllm_cpu.py) vLLM; structured output against Outlines; the first text of
an answer over a long history with and without prefix reuse; forwards for an id with drafts and forced text; what a long
prompt does to running streams; memory; a step against the model's bare forward and the limit of the memory's bandwidth;
and how all of it grows.

Same weights, dtype, device and threads everywhere; greedy. Each side is a process of its own. Sides take turns, round
by round, with prompts that they have not read before; the first round is not counted, and a figure is the median of
the others. A side that is not installed or does not run says so in its line. Run it on an idle machine: seconds depend
on it, ratios less; the head of the table gives the load that there was at the start.

Prints the table and writes performance.json, performance.png (with matplotlib) and prompts.json into build/bench.
`pip install -c constraints.txt -e '.[bench]'` and `pip install --no-deps -c constraints.txt langchain-huggingface`
install the peers; `make bench` does both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from speed import arrival, chat, drafting, extraction, growth, memory, step, throughput
from speed.children import Child, Sides
from speed.lines import Line
from speed.machine import Facts, Look
from speed.peers import versions
from speed.prompts import wish
from speed.report import table
from speed.settings import Settings, add_arguments, read_arguments

OUTPUT = Path(__file__).parents[1] / "build" / "bench"
ROWS = (
    throughput.ROW, extraction.ROW, chat.ROW, drafting.ROW, arrival.ROW, memory.ROW, step.ROW, growth.ROW,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--vllm-python", default=None, metavar="PATH", help="the interpreter of vLLM's environment")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the files (default: build/bench)")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    report = measure(read_arguments(arguments), arguments.only, arguments.vllm_python, arguments.output)
    print(table(report))
    write(report, arguments.output)
    if failed := [row for row in arguments.only if row in report["failed"]]:
        sys.exit(f"Not measured to the end: {', '.join(failed)}")


def measure(settings: Settings, rows: list[str], python: str | None, output: Path) -> dict[str, Any]:
    """What `table` prints and the JSON file holds."""
    settings, facts, rounds = look(settings)
    job = {"model": facts.folder, "new": settings.new, "rounds": rounds[1:]}
    (output / "prompts.json").write_text(json.dumps(job))
    curves: dict[str, Any] = {}

    def grow() -> list[Line]:
        lines, found = growth.measure(settings, [prompt for prompts in rounds for prompt in prompts])
        curves.update(found)
        return lines

    last = rounds[-1][-16:]
    measures: dict[str, Callable[[], list[Line]]] = {
        throughput.ROW: lambda: throughput.measure(settings, facts, rounds, python),
        extraction.ROW: lambda: extraction.measure(settings),
        chat.ROW: lambda: chat.measure(settings),
        drafting.ROW: lambda: drafting.measure(settings),
        arrival.ROW: lambda: arrival.measure(settings, last),
        memory.ROW: lambda: memory.measure(settings, facts, last),
        step.ROW: lambda: step.measure(settings, facts),
        growth.ROW: grow,
    }
    lines: list[Line] = []
    failed: dict[str, str] = {}
    for row in (row for row in ROWS if row in rows):
        start = time.perf_counter()
        try:
            lines += measures[row]()
        except Exception as problem:  # the rows that are measured are worth keeping
            failed[row] = f"{type(problem).__name__}: {problem}"
        print(f"{row}: {time.perf_counter() - start:.0f} s {failed.get(row, '')}", file=sys.stderr, flush=True)
    return {
        "model": facts.name,
        "dtype": settings.dtype,
        "threads": facts.threads,
        "quick": settings.quick,
        "new": settings.new,
        "rounds": settings.rounds,
        "context_length": facts.length,
        "weights": facts.weights,
        **facts.machine,
        "versions": versions(),
        "lines": [{**asdict(line), "ratio": line.ratio} for line in lines],
        "growth": curves,
        "failed": failed,
    }


def look(settings: Settings) -> tuple[Settings, Facts, list[list[list[int]]]]:
    """The settings with what the model says of itself, and prompts for each round; the first one is a rehearsal."""
    with Sides({"look": Child(Look, settings)}) as sides:
        facts = sides.call("look", "facts")
        if facts is None:
            sys.exit(f"The model could not be loaded: {sides.missing['look']}")
        turns = range(settings.rounds + 1)
        texts = [[wish(number, turn) for number in range(sum(throughput.BATCHES))] for turn in turns]
        rounds = [sides.call("look", "prompts", wishes) for wishes in texts]
    return replace(settings, length=facts.length), facts, rounds


def write(report: dict[str, Any], output: Path, name: str = "performance") -> None:
    """The JSON file and the chart."""
    (output / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    try:
        from speed.chart import draw
    except ModuleNotFoundError as problem:
        print(f"No chart: {problem.name} is not installed.", file=sys.stderr)
    else:
        draw(report, output / f"{name}.png")


if __name__ == "__main__":
    main()
