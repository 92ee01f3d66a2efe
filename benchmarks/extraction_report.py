"""What was measured, as numbers and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from extraction_items import GROUPS, Item
from extraction_scoring import changes, fields, sign_test
from extraction_sides import Answer

from chatlocal.engine import constraints
from chatlocal.engine.errors import OutputInvalid

Answers = dict[str, list[Answer]]


def report(items: list[Item], answers: Answers, prefill: list[Answer], ours: list[str]) -> dict[str, Any]:
    """`ours` are the settings of chatlocal, the one that the others are compared with first."""
    taken = [place for place in range(len(items)) if not any(given[place].refused for given in answers.values())]
    prompts = [prefill[place] for place in taken]
    return {
        "items": len(items),
        "timed": len(taken),
        "prefill": {
            "forwards": mean(answer.forwards for answer in prompts),
            "seconds": mean(answer.seconds for answer in prompts),
        },
        "work": {name: work([given[place] for place in taken], prompts) for name, given in answers.items()},
        "values": {name: values(items, given) for name, given in answers.items() if any(a.text for a in given)},
        "changes": [compare(items, answers, before, ours[0]) for before in ours[1:]],
        "answers": {name: [asdict(answer) for answer in given] for name, given in answers.items()},
    }


def work(answers: list[Answer], prompts: list[Answer]) -> dict[str, Any]:
    tokens = sum(answer.tokens for answer in answers)
    seconds = sum(answer.seconds for answer in answers)
    return {
        "tokens": tokens,
        "forced": sum(answer.forced for answer in answers),
        "selected": sum(answer.selected for answer in answers),
        "forwards_per_token": sum(a.forwards - p.forwards for a, p in zip(answers, prompts, strict=True)) / tokens,
        "seconds": seconds / len(answers),
        "ms_per_token": 1000 * seconds / tokens,
        "compile_ms": 1000 * mean(answer.compiled for answer in answers),
    }


def values(items: list[Item], answers: list[Answer]) -> dict[str, Any]:
    right = dict.fromkeys(GROUPS, 0)
    of = dict.fromkeys(GROUPS, 0)
    scores = scored(items, answers)
    for item, score in zip(items, scores, strict=True):
        right[item.group] += sum(score.values())
        of[item.group] += len(score)
    return {
        "right": right,
        "fields": of,
        "whole": sum(all(score.values()) for score in scores),
        "valid": sum(valid(item, answer) for item, answer in zip(items, answers, strict=True)),
        "refused": sum(answer.refused is not None for answer in answers),
        "limited": sum(answer.limited for answer in answers),
    }


def compare(items: list[Item], answers: Answers, before: str, after: str) -> dict[str, Any]:
    gained, lost = changes(scored(items, answers[before]), scored(items, answers[after]))
    return {"from": before, "to": after, "gained": gained, "lost": lost, "p": sign_test(gained, lost)}


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


def mean(numbers: Iterable[float]) -> float:
    counted = list(numbers)
    return sum(counted) / len(counted)


def table(report: dict[str, Any]) -> str:
    lines = [
        "{model}, {dtype}, {threads} threads, {machine}, torch {torch}, transformers {transformers}".format(**report),
        "",
        f"{'fields right':22}{''.join(f'{group:>16}' for group in GROUPS)}   whole  valid  refused  at limit",
    ]
    for name, row in report["values"].items():
        right = "".join(
            f"{right}/{of}".rjust(16) for right, of in zip(row["right"].values(), row["fields"].values(), strict=True)
        )
        lines.append(f"{name:22}{right}{row['whole']:8}{row['valid']:7}{row['refused']:9}{row['limited']:10}")
    lines += [
        f"{change['from']!r} to {change['to']!r}: {change['gained']} fields became right, {change['lost']} wrong"
        f" (sign test: p = {change['p']:.2f})"
        for change in report["changes"]
    ]
    prompt = "a prompt takes {forwards:.1f} forwards and {seconds:.2f} s".format(**report["prefill"])
    lines += [
        "",
        f"{report['timed']} of {report['items']} items, which nobody refused; {prompt}",
        f"{'':22}  tokens  forced  selected  forwards/token  s/item  ms/token  compile ms",
    ]
    for name, row in report["work"].items():
        lines.append(
            f"{name:22}{row['tokens']:8}{row['forced']:8}{row['selected']:10}{row['forwards_per_token']:16.2f}"
            f"{row['seconds']:8.2f}{row['ms_per_token']:10.0f}{row['compile_ms']:12.0f}"
        )
    return "\n".join(lines)
