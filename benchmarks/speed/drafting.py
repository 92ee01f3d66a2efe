"""Rows `drafting`: forward passes for an id, and ids per second, with drafts and forced text on and off.

The texts are those of the extraction set, and questions about six of its texts that are to be answered by quoting one.
Forwards for an id are those of decoding: what a prompt takes is counted in a request of one id and taken off.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from extraction_items import read

from chatlocal.engine.messages import Sampling
from speed.children import Child, Sides
from speed.extraction import Ours
from speed.lines import Line
from speed.prompts import english_texts
from speed.settings import Settings

ROW = "drafting"
# Prefixes are not reused: the prompt's forwards are counted by reading it twice.
SETTINGS: dict[str, dict[str, Any]] = {
    "both": {"drafting": True, "forced_text": True},
    "drafts alone": {"drafting": True, "forced_text": False},
    "forced text alone": {"drafting": False, "forced_text": True},
    "neither": {"drafting": False, "forced_text": False},
}


@dataclass(frozen=True)
class Work:
    """What answers took: ids, seconds, and the forwards of decoding."""

    tokens: int
    seconds: float
    forwards: int

    def per_id(self) -> float:
        return self.forwards / self.tokens

    def rate(self) -> float:
        return self.tokens / self.seconds


class Drafting(Ours):
    def extract(self, item: Any) -> Work:
        prompt = self.prefill(item)
        given = self.answer(item)
        return Work(given.tokens, given.seconds, given.forwards - prompt.forwards)

    def quote(self, question: str) -> Work:
        messages = [{"role": "user", "content": question}]
        prompt = self._took(messages, 1)
        given = self._took(messages, 64)
        return Work(given.tokens, given.seconds, given.forwards - prompt.forwards)

    def _took(self, messages: list[dict[str, str]], new: int) -> Work:
        before = self.engine.stats()
        start = time.perf_counter()
        self.engine.generate(messages, sampling=Sampling(temperature=0.0, max_tokens=new))
        after = self.engine.stats()
        seconds = time.perf_counter() - start
        return Work(after["tokens_out"] - before["tokens_out"], seconds, after["forwards"] - before["forwards"])


def questions(count: int) -> list[str]:
    """Six texts, and a question that one of them answers."""
    texts = english_texts()
    asked = []
    for number in range(count):
        shown = [texts[(number * 5 + place) % len(texts)] for place in range(6)]
        about = " ".join(shown[number % 6].split()[:5])
        context = "\n".join(f"[{place}] {text}" for place, text in enumerate(shown, 1))
        asked.append(
            f"Context:\n{context}\n\nAnswer from the context: quote the passage word for word before you explain it."
            f" What does the passage say that begins with '{about}'?"
        )
    return asked


def measure(settings: Settings) -> list[Line]:
    items = [item for item in read(count=settings.least(30, 4)) if item.text.isascii()]
    asked = questions(settings.least(10, 2))
    work: dict[str, dict[str, list[Work]]] = {name: {"extract": [], "quote": []} for name in SETTINGS}
    with Sides({name: Child(Drafting, settings, prefix_reuse=False, **SETTINGS[name]) for name in SETTINGS}) as sides:
        for method, things in (("extract", items), ("quote", asked)):
            for number, thing in enumerate([things[-1], *things]):
                for name in SETTINGS:
                    took = sides.call(name, method, thing)
                    if took is not None and number:
                        work[name][method].append(took)
        missing = sides.missing
    lines = []
    for method, what in (("extract", "extraction set"), ("quote", "answers that quote their context")):
        others = ("neither", "forced text alone", "drafts alone") if method == "extract" else ("neither",)
        ours = _sum(work["both"][method])
        for name in others:
            theirs = _sum(work[name][method])
            note = missing.get("both", missing.get(name, ""))
            title = {"neither": "no drafts, no forced text"}.get(name, name) if method == "extract" else "no drafts"
            lines += [
                Line(
                    ROW, f"{what}, forwards for an id", "", ours and ours.per_id(), title,
                    theirs and theirs.per_id(), "less", note,
                ),
                Line(ROW, what, "tokens/s", ours and ours.rate(), title, theirs and theirs.rate(), "more", note),
            ]  # fmt: skip
    return lines


def _sum(work: Iterable[Work]) -> Work | None:
    done = list(work)
    if not done:
        return None
    return Work(sum(w.tokens for w in done), sum(w.seconds for w in done), sum(w.forwards for w in done))
