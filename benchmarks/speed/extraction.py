"""Row `extraction`: structured output for one request at a time, against Outlines on the same weights and prompts."""

from __future__ import annotations

import statistics
from types import SimpleNamespace
from typing import Any

from extraction_items import Item, read
from extraction_report import valid
from extraction_sides import Answer, Outlines, Peer
from extraction_sides import Chatlocal as Asked

from chatlocal.engine.messages import ChatMessage
from speed.children import Child, Sides
from speed.lines import Line
from speed.ours import Chatlocal
from speed.peers import Generate
from speed.settings import Settings

ROW = "extraction"


class Ours(Chatlocal):
    """The engine, asked as in `with_structured_output`."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(settings, **options)
        self._asked = Asked(self.engine)

    def turns(self, item: Item) -> list[dict[str, str]]:
        """The messages of the request, in OpenAI's shape."""
        return [{"role": turn.role, "content": turn.text} for turn in self._asked.messages(item)]

    def answer(self, item: Item) -> Answer:
        """The grammar is compiled before the clock starts."""
        self._asked.prepare(item)
        return self._asked.answer(item)

    def prefill(self, item: Item) -> Answer:
        return self._asked.prefill(item)


class Theirs(Generate):
    """Outlines on a plain transformers model, with its default backend."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        generation = self.model.generation_config
        generation.eos_token_id = self.tokenizer.eos_token_id
        self._turns: list[dict[str, str]] = []
        worded = SimpleNamespace(messages=lambda _: [ChatMessage(t["role"], t["content"]) for t in self._turns])
        self._outlines = Outlines(Peer(self.model, worded), self.tokenizer)  # type: ignore[arg-type]

    def answer(self, item: Item, turns: list[dict[str, str]]) -> Answer:
        """Its prompt is ours. The grammar is compiled before the clock starts; `refused` says why there was none."""
        self._turns = turns
        try:
            self._outlines.prepare(item)
        except Exception as problem:
            return Answer("", 0.0, 0, 0, refused=str(problem)[:200])
        return self._outlines.answer(item)


def measure(settings: Settings) -> list[Line]:
    items = [item for item in read(count=settings.least(24, 6)) if item.text.isascii()]
    makers = {
        "chatlocal": Child(Ours, settings),
        "no reuse": Child(Ours, settings, prefix_reuse=False),
        "outlines": Child(Theirs, settings),
    }
    answers: dict[str, list[Answer]] = {name: [] for name in makers}
    with Sides(makers) as sides:
        for number, item in enumerate([items[-1], *items]):  # the first request of a process is slower
            turns = sides.call("no reuse", "turns", item) or sides.call("chatlocal", "turns", item)
            for name in makers:
                given = sides.call(name, "answer", item, *([turns] if name == "outlines" else []))
                if given is not None and number:
                    answers[name].append(given)
        missing = dict(sides.missing)
    answers = {name: given for name, given in answers.items() if name not in missing}
    taken = [n for n in range(len(items)) if not any(given[n].refused for given in answers.values())]
    lines = []
    for name, title in (("outlines", "outlines"), ("no reuse", "chatlocal without prefix reuse")):
        refused = sum(1 for answer in answers.get(name, ()) if answer.refused)
        counted = f"{len(taken)} texts" + (f", {refused} more refused" if refused else "")
        note = missing.get(name, f"{counted}, {_valid(items, answers, name, taken)} of its answers valid")
        for what, unit, figure, better in (
            ("a structured answer, one request", "s", _seconds, "less"),
            ("structured answers, one request", "tokens/s", _rate, "more"),
        ):
            ours, theirs = (figure(answers.get(side), taken) for side in ("chatlocal", name))
            lines.append(Line(ROW, what, unit, ours, title, theirs, better=better, note=missing.get("chatlocal", note)))
    return lines


def _seconds(answers: list[Answer] | None, taken: list[int]) -> float | None:
    """Mean seconds for an answer, its prompt included."""
    return statistics.mean(answers[n].seconds for n in taken) if answers and taken else None


def _rate(answers: list[Answer] | None, taken: list[int]) -> float | None:
    if not answers or not taken:
        return None
    return sum(answers[n].tokens for n in taken) / sum(answers[n].seconds for n in taken)


def _valid(items: list[Item], answers: dict[str, list[Answer]], name: str, taken: list[int]) -> int:
    return sum(valid(items[n], answers[name][n]) for n in taken) if name in answers else 0
