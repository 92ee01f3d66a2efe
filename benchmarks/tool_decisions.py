"""How often a model that was never trained for tools is right about whether a tool is needed.

96 messages (data/tool_decisions.jsonl, English and Chinese), half of which need one of the declared tools; the others
greet, ask about the same subject or about something else. Weights and threshold were fitted on the half "dev" alone;
"test" has other tools. "again" are the decisions behind a result: of the messages that needed a tool, how many are said
to need another one. `python benchmarks/tool_decisions.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from chatlocal.engine import Engine, Tool, families
from chatlocal.engine.call_decision import DEFAULT_THRESHOLD, call_scores

DECISIONS = Path(__file__).parent / "data" / "tool_decisions.jsonl"


@dataclass(frozen=True)
class Item:
    """A message, the declared tools, the name of the one that is needed (None: the answer is text), and its scores."""

    split: str
    language: str
    user: str
    tools: tuple[Tool, ...]
    needed: str | None
    scores: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.scores)

    @property
    def meant(self) -> str:
        return self.tools[self.scores.index(self.best)].name

    @property
    def others(self) -> float:
        """The best score of the tools that are not needed."""
        scores = (score for tool, score in zip(self.tools, self.scores, strict=True) if tool.name != self.needed)
        return max(scores, default=float("-inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--threshold", type=float, default=DEFAULT_THRESHOLD)
    parser.add_argument("--show", action="store_true", help="print every message with its score")
    arguments = parser.parse_args()
    with Engine.load(arguments.model, dtype=arguments.dtype) as engine:
        items = list(read(engine))
    if arguments.show:
        for item in sorted(items, key=lambda item: item.best):
            print(f"    {item.split:5}{item.best:6.2f} {item.needed or '-':20} {item.meant:20} {item.user}")
    for split in ("dev", "test"):
        for language in ("en", "zh"):
            report(split, language, items, arguments.threshold)
        found = best_threshold([item for item in items if item.split == split])
        print(f"{split}: the threshold that is best for this half: {found:.2f}")


def report(split: str, language: str, items: Iterable[Item], threshold: float) -> None:
    chosen = [item for item in items if (item.split, item.language) == (split, language)]
    needed = [item for item in chosen if item.needed]
    called = [item for item in chosen if item.best >= threshold]
    right = sum(item.needed is not None for item in called)
    accuracy = right + sum(item.best < threshold for item in chosen if not item.needed)
    meant = sum(item.meant == item.needed for item in needed)
    again = sum(item.others >= threshold for item in needed)
    print(
        f"{split:5}{language}: accuracy {accuracy}/{len(chosen)}  precision {right}/{len(called)}"
        f"  recall {right}/{len(needed)}  right tool {meant}/{len(needed)}  again {again}/{len(needed)}",
        flush=True,
    )


def best_threshold(items: list[Item]) -> float:
    """The middle of the thresholds with the most right decisions."""
    candidates = sorted(item.best for item in items)
    borders = [(low + high) / 2 for low, high in pairwise(candidates)]
    right = [sum((item.best >= border) == (item.needed is not None) for item in items) for border in borders]
    best = [border for border, count in zip(borders, right, strict=True) if count == max(right)]
    return best[len(best) // 2]


def read(engine: Engine) -> Iterator[Item]:
    family = families.resolve(engine.tokenizer, engine.model.config).family
    for line in DECISIONS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        tools = tuple(tool_of(tool) for tool in record["tools"])
        scores = call_scores(
            record["user"], tools, family=family, tokenizer=engine.tokenizer, score=engine.backend.score
        )
        yield Item(record["split"], record["language"], record["user"], tools, record["needed"], scores)


def tool_of(record: dict[str, Any]) -> Tool:
    properties = {
        name: {"enum": kind, "description": words} if isinstance(kind, list) else {"type": kind, "description": words}
        for name, (kind, words) in record["parameters"].items()
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(record["name"], record["description"], schema)


if __name__ == "__main__":
    main()
