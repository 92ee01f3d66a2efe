"""Structured output as an extraction job: how many values are right, in how many forwards, in how much time.

84 short texts with one right answer each (data/extraction.jsonl, English and Chinese): records, records within records,
lists of records, optional fields. Each item is answered in turn by chatlocal in five settings (drafts, forced text and
the selective output head on and off) and by two peers with the same weights, dtype and prompts: Outlines with the same
schema, and transformers' `generate` without any grammar, held to as many tokens as chatlocal's first setting wrote.

Requests run one at a time. What a side refuses to compile has all its fields wrong; tokens and times are those of the
items that no side refused. Forwards per token are those of decoding: the forwards of each prompt are counted in a
request of one unconstrained token and taken off; for that no prefix is reused. Grammars are compiled before the clock
starts, seconds per item include the prompt. How fields are counted is said in extraction_scoring.py.
`python benchmarks/extraction.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
import transformers
from extraction_items import Item, read
from extraction_report import report, table
from extraction_sides import Answer, Chatlocal, Generate, Outlines, Peer, Side

from chatlocal.engine import Engine, loading

SETTINGS = {
    "all three": {"drafting": True, "forced_text": True, "selective_head": True},
    "text and head": {"drafting": False, "forced_text": True, "selective_head": True},
    "forced text": {"drafting": False, "forced_text": True, "selective_head": False},
    "selective head": {"drafting": False, "forced_text": False, "selective_head": True},
    "none": {"drafting": False, "forced_text": False, "selective_head": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--items", type=int, default=None, help="so many items from all over the set (default: all)")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--json", action="store_true", help="print one JSON object, answers included")
    arguments = parser.parse_args()
    items = read(count=arguments.items)
    load = {"dtype": arguments.dtype, "num_threads": arguments.threads}
    with ExitStack() as opened:
        ours = {
            name: Chatlocal(
                opened.enter_context(Engine.load(arguments.model, prefix_reuse=False, **SETTINGS[name], **load))
            )
            for name in arguments.settings
        }
        first = next(iter(ours.values()))
        theirs: dict[str, Side] = {}
        if not arguments.skip_peers:
            loaded = loading.load(arguments.model, **load)
            theirs = peers(Peer(loaded.model, first), loaded.tokenizer)
        sides: dict[str, Side] = {**ours, **theirs}
        run(items[:1], sides, first)  # the first request of a process is slower
        answers, prefill = run(items, sides, first)
        model = first.engine.name
    machine = {
        "model": model,
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    measured = {**machine, **report(items, answers, prefill, list(ours))}
    print(json.dumps(measured, ensure_ascii=False) if arguments.json else table(measured))


def peers(peer: Peer, tokenizer: Any) -> dict[str, Side]:
    sides: dict[str, Side] = {"generate, no grammar": Generate(peer)}
    try:
        sides["outlines"] = Outlines(peer, tokenizer)
    except ImportError:
        print("Without Outlines, which is not installed: pip install 'chatlocal-llm[bench]'", file=sys.stderr)
    return sides


def run(items: list[Item], sides: dict[str, Side], first: Chatlocal) -> tuple[dict[str, list[Answer]], list[Answer]]:
    """The answers of each side, and what the prompts take. Item by item, side by side, so that what else the machine
    does falls on all of them."""
    answers: dict[str, list[Answer]] = {name: [] for name in sides}
    prefill: list[Answer] = []
    for number, item in enumerate(items, 1):
        prefill.append(first.prefill(item))
        for name, side in sides.items():
            if isinstance(side, Generate):
                side.tokens = max(1, next(iter(answers.values()))[-1].tokens)
            answers[name].append(answered(side, item))
        print(f"\r{number}/{len(items)}", end="" if number < len(items) else "\n", file=sys.stderr, flush=True)
    return answers, prefill


def answered(side: Side, item: Item) -> Answer:
    start = time.perf_counter()
    try:
        side.prepare(item)
    except Exception as problem:
        return Answer("", 0.0, 0, 0, refused=str(problem))
    compiled = time.perf_counter() - start
    return replace(side.answer(item), compiled=compiled)


if __name__ == "__main__":
    main()
