"""Whether a device gives the answers of the CPU, and the same ones however they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from extraction_items import Item, read
from extraction_report import valid

from chatlocal.engine.messages import Sampling
from speed.children import Sides
from speed.extraction import Ours
from speed.prompts import TOPICS, wish

# Root mean square of the distance of the logits, in their standard deviations.
_DISTANCE = 1e-3
# Logits that are closer than this may fall either way on another device.
_TIE = 1e-3
_NEW = 32


@dataclass(frozen=True)
class Check:
    what: str
    fine: bool
    found: str


class Answers(Ours):
    """An engine that answers alone and in batches, in conversations and in JSON."""

    def prompts(self, texts: list[str]) -> list[list[int]]:
        engine = self.engine
        return [list(engine.render([{"role": "user", "content": text}]).ids(engine.tokenizer)) for text in texts]

    def together(self, prompts: list[list[int]]) -> list[list[int]]:
        return self.run(prompts, _NEW).ids

    def alone(self, prompts: list[list[int]]) -> list[list[int]]:
        return [self.run([prompt], _NEW).ids[0] for prompt in prompts]

    def logits(self, ids: list[int]) -> Any:
        """Of the model itself behind the last id: a float32 array [vocabulary]."""
        with torch.inference_mode():
            read = torch.tensor([ids], device=self.engine.model.device)
            return self.engine.model(input_ids=read).logits[0, -1].float().cpu().numpy()

    def talk(self, questions: list[str]) -> list[str]:
        """The answers of a conversation."""
        messages: list[dict[str, str]] = []
        for question in questions:
            messages.append({"role": "user", "content": question})
            reply = self.engine.generate(messages, sampling=Sampling(temperature=0.0, max_tokens=_NEW))
            messages.append({"role": "assistant", "content": reply.message.text})
        return [message["content"] for message in messages if message["role"] == "assistant"]

    def extract(self, items: list[Item]) -> list[str]:
        return [self.answer(item).text for item in items]

    def memory(self) -> int:
        """The most bytes that were allocated on the device."""
        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def checks(sides: Sides) -> Iterator[Check]:
    """`sides` are Answers named cpu, device, and plain (the device without drafts and prefix reuse), all in float32."""
    prompts = sides.call("cpu", "prompts", [wish(number, 0) for number in range(len(TOPICS))])
    ours: dict[str, Any] = {name: sides.call(name, "together", prompts) for name in ("cpu", "device", "plain")}
    if sides.missing:
        yield from (Check(f"an engine on {name}", False, why) for name, why in sides.missing.items())
        return
    yield _logits(sides, prompts)
    yield _same("greedy ids, device against CPU", sides, prompts, ours["cpu"], ours["device"])
    alone = sides.call("device", "alone", prompts[:4])
    yield _same("greedy ids, alone against a batch", sides, prompts[:4], alone, ours["device"][:4])
    yield _same("greedy ids, with drafts against without", sides, prompts, ours["plain"], ours["device"])
    questions = ["Name three rivers in Europe.", "Which of them is the longest?", "Say that again in one sentence."]
    talks = [sides.call(name, "talk", questions) for name in ("device", "plain")]
    yield Check("a conversation, with prefix reuse against without", talks[0] == talks[1], f"{len(talks[0])} answers")
    items = read(count=4)
    texts = {name: sides.call(name, "extract", items) for name in ("cpu", "device", "plain")}
    whole = sum(valid(item, _Text(text)) for item, text in zip(items, texts["device"], strict=True))  # type: ignore[arg-type]
    yield Check("structured answers are valid", whole == len(items), f"{whole} of {len(items)}")
    for name, what in (("cpu", "device against CPU"), ("plain", "with drafts against without")):
        equal = sum(one == other for one, other in zip(texts[name], texts["device"], strict=True))
        yield Check(f"structured answers, {what}", equal == len(items), f"{equal} of {len(items)} equal")
    yield Check("memory of the device", True, f"{sides.call('device', 'memory') / 1e6:.0f} MB at most, in float32")


@dataclass(frozen=True)
class _Text:
    text: str


def _logits(sides: Sides, prompts: list[list[int]]) -> Check:
    worst = 0.0
    for prompt in prompts[:4]:
        expected, found = (torch.from_numpy(sides.call(name, "logits", prompt)) for name in ("cpu", "device"))
        worst = max(worst, float((found - expected).square().mean().sqrt() / expected.std()))
    return Check("logits, device against CPU", worst <= _DISTANCE, f"distance {worst:.1e} of their deviation")


def _same(
    what: str, sides: Sides, prompts: list[list[int]], expected: list[list[int]], found: list[list[int]]
) -> Check:
    """Whether ids are equal up to the first near tie of each answer."""
    equal = ties = 0
    for prompt, one, other in zip(prompts, expected, found, strict=True):
        places = [place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
        if not places:
            equal += len(one) == len(other)
            continue
        logits = sides.call("cpu", "logits", [*prompt, *one[: places[0]]])
        ties += bool(abs(logits[one[places[0]]] - logits[other[places[0]]]) < _TIE)
    fine = equal + ties == len(prompts)
    return Check(what, fine, f"{equal} of {len(prompts)} equal" + (f", {ties} up to a tie" if ties else ""))
