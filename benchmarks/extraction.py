"""Structured output as an extraction job: how many values are right, in how many forwards, in how much time.

84 short texts with one right answer each (data/extraction.jsonl, English and Chinese): records, records within records,
lists of records, optional fields. Each item is answered in turn by chatlocal in four settings (forced text and the
selective output head on and off) and by two peers with the same weights, dtype and prompts: Outlines with the same
schema, and transformers' `generate` without any grammar, held to as many tokens as chatlocal's first setting wrote.

Requests run one at a time. Forwards per token are those of decoding: the forwards of each prompt are counted in a
request of one unconstrained token and taken off. Grammars are compiled before the clock starts, seconds per item
include the prompt. How fields are counted is said in extraction_scoring.py.
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
from dataclasses import asdict
from typing import Any

import torch
import transformers
from extraction_items import GROUPS, Item, read
from extraction_scoring import changes, fields, sign_test
from extraction_sides import Answer, Chatlocal, Generate, Outlines, Peer, Side

from chatlocal.engine import Engine, constraints, loading
from chatlocal.engine.errors import OutputInvalid

SETTINGS = {
    "both": {"forced_text": True, "selective_head": True},
    "forced text": {"forced_text": True, "selective_head": False},
    "selective head": {"forced_text": False, "selective_head": True},
    "neither": {"forced_text": False, "selective_head": False},
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
            name: Chatlocal(opened.enter_context(Engine.load(arguments.model, **SETTINGS[name], **load)))
            for name in arguments.settings
        }
        first = next(iter(ours.values()))
        theirs: dict[str, Side] = {}
        if not arguments.skip_peers:
            loaded = loading.load(arguments.model, **load)
            theirs = peers(Peer(loaded.model, first), loaded.tokenizer)
        sides: dict[str, Side] = {**ours, **theirs}
        run(items[:1], sides, first)  # the first request of a process is slower
        answers, compiled, prefill = run(items, sides, first)
        model = first.engine.name
    report = {
        "model": model,
        "dtype": arguments.dtype,
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "items": len(items),
        "prefill": {"forwards": mean(prefill, "forwards"), "seconds": mean(prefill, "seconds")},
        "rows": [row(name, items, answers[name], compiled[name], prefill) for name in sides],
        "changes": [
            compare(items, answers, before, after) for after in list(ours)[:1] for before in ours if before != after
        ],
        "answers": {name: [asdict(answer) for answer in given] for name, given in answers.items()},
    }
    print(json.dumps(report, ensure_ascii=False) if arguments.json else table(report))


def peers(peer: Peer, tokenizer: Any) -> dict[str, Side]:
    sides: dict[str, Side] = {"generate, no grammar": Generate(peer)}
    try:
        sides["outlines"] = Outlines(peer, tokenizer)
    except ImportError:
        print("Without Outlines, which is not installed: pip install 'chatlocal-llm[bench]'", file=sys.stderr)
    return sides


def run(
    items: list[Item], sides: dict[str, Side], first: Chatlocal
) -> tuple[dict[str, list[Answer]], dict[str, list[float]], list[Answer]]:
    """The answers of each side, the seconds that it compiled, and what the prompts took. Item by item, side by side,
    so that what else the machine does falls on all of them."""
    answers: dict[str, list[Answer]] = {name: [] for name in sides}
    compiled: dict[str, list[float]] = {name: [] for name in sides}
    prefill: list[Answer] = []
    for number, item in enumerate(items, 1):
        prefill.append(first.prefill(item))
        for name, side in sides.items():
            if isinstance(side, Generate):
                side.tokens = next(iter(answers.values()))[-1].tokens
            start = time.perf_counter()
            side.prepare(item)
            compiled[name].append(time.perf_counter() - start)
            answers[name].append(side.answer(item))
        print(f"\r{number}/{len(items)}", end="" if number < len(items) else "\n", file=sys.stderr, flush=True)
    return answers, compiled, prefill


def row(
    name: str, items: list[Item], answers: list[Answer], compiled: list[float], prefill: list[Answer]
) -> dict[str, Any]:
    tokens = sum(answer.tokens for answer in answers)
    measured: dict[str, Any] = {
        "name": name,
        "tokens": tokens,
        "forwards_per_token": sum(a.forwards - p.forwards for a, p in zip(answers, prefill, strict=True)) / tokens,
        "forced": sum(answer.forced for answer in answers),
        "selected": sum(answer.selected for answer in answers),
        "seconds": mean(answers, "seconds"),
        "ms_per_token": 1000 * sum(answer.seconds for answer in answers) / tokens,
        "compile_ms": 1000 * sum(compiled) / len(compiled),
    }
    if not any(answer.text for answer in answers):
        return measured
    scores = scored(items, answers)
    groups = {
        group: [score for item, score in zip(items, scores, strict=True) if item.group == group] for group in GROUPS
    }
    right = {group: (sum(sum(s.values()) for s in of), sum(map(len, of))) for group, of in groups.items()}
    return {
        **measured,
        "right": right,
        "whole": sum(all(score.values()) for score in scores),
        "valid": sum(valid(item, answer) for item, answer in zip(items, answers, strict=True)),
        "limited": sum(answer.limited for answer in answers),
    }


def scored(items: list[Item], answers: list[Answer]) -> list[dict[Any, bool]]:
    return [dict(fields(item.answer, parsed(answer.text))) for item, answer in zip(items, answers, strict=True)]


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def valid(item: Item, answer: Answer) -> bool:
    try:
        constraints.validation.check(item.schema, answer.text)
    except OutputInvalid:
        return False
    return True


def compare(items: list[Item], answers: dict[str, list[Answer]], before: str, after: str) -> dict[str, Any]:
    gained, lost = changes(scored(items, answers[before]), scored(items, answers[after]))
    return {"from": before, "to": after, "gained": gained, "lost": lost, "p": sign_test(gained, lost)}


def mean(answers: list[Answer], what: str) -> float:
    return float(sum(getattr(answer, what) for answer in answers) / len(answers))


def table(report: dict[str, Any]) -> str:
    lines = [
        "{model}, {dtype}, {threads} threads, {machine}, torch {torch}, transformers {transformers}".format(**report),
        "{items} items; a prompt takes {0:.1f} forwards and {1:.2f} s".format(*report["prefill"].values(), **report),
        "",
        f"{'fields right':22}" + "".join(f"{group:>16}" for group in GROUPS) + f"{'whole':>8}{'valid':>7}{'limit':>7}",
    ]
    for r in report["rows"]:
        if "right" in r:
            counts = "".join(f"{f'{right}/{of}':>16}" for right, of in r["right"].values())
            lines.append(f"{r['name']:22}{counts}{r['whole']:8}{r['valid']:7}{r['limited']:7}")
    heads = (("tokens", 8), ("forced", 8), ("selected", 10), ("forwards/token", 16), ("s/item", 8), ("ms/token", 10))
    lines += ["", " " * 22 + "".join(f"{head:>{width}}" for head, width in heads) + f"{'compile ms':>12}"]
    for r in report["rows"]:
        lines.append(
            f"{r['name']:22}{r['tokens']:8}{r['forced']:8}{r['selected']:10}{r['forwards_per_token']:16.2f}"
            f"{r['seconds']:8.2f}{r['ms_per_token']:10.0f}{r['compile_ms']:12.0f}"
        )
    lines.append("")
    for c in report["changes"]:
        lines.append(
            f"fields, from {c['from']!r} to {c['to']!r}: {c['gained']} became right, {c['lost']} became wrong"
            f" (sign test: p = {c['p']:.2f})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
