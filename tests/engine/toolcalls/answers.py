"""Answers of every format with payload that can be told from marks, mutated and looked for again."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Event, Reasoning, Text
from chatlocal.engine.messages import ToolCall

# The formats that leave nothing out; a ReAct answer ends at its call, whatever the model writes further.
LOSSLESS = (
    *("hermes", "qwen3_coder", "mistral", "llama3", "pythonic", "chatglm3", "glm4", "glm4.5"),
    *("deepseek_v3", "deepseek_v3.1", "deepseek_r1", "prompted"),
)

# What the formats write around payload, and what models confuse it with.
MARKS = (
    *("<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", ">"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<think>", "</think>", "[THINK]", "[/THINK]"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "</s>", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>"),
    *("<|python_start|>", "<|python_end|>", "<|tool_call_start|>", "<|tool_call_end|>", "<|assistant|>"),
    *("<|observation|>", "<|user|>", "<|endoftext|>", "```python\ntool_call(", "```json", "```", "tool_call("),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    *("<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>", "function"),
    *("{", "}", "[", "]", "(", ")", '"', "'", "\\", ":", ",", ";", "=", "**", "\n", " ", "\\n", "\\u00g", "1", "-"),
    *('"name"', '"arguments"', '"parameters"', '"type"', '"id"', '"function"', "True", "None", "null", "true", "NaN"),
)
_TOKEN = re.compile("|".join(re.escape(mark) for mark in sorted(MARKS, key=len, reverse=True)) + r"|\w+|\s+|.", re.S)
# What no mark holds: texts and numbers that stand once in an answer, ids, and the name of a function.
_PAYLOAD = re.compile(r"zq[0-9]{4}[\u4e00-\u4fff]|97[0-9]{5}|id[0-9]{7}|get_weather")


class Payload:
    """Texts that stand once in an answer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._numbers = rng.sample(range(1000, 10000), 200)

    def word(self) -> str:
        """A text of its own."""
        return f"zq{self._numbers.pop()}{chr(self._rng.randrange(0x4E00, 0x5000))}"

    def text(self) -> str:
        """Words with what texts have between them."""
        between = [
            " ",
            "\n",
            "\t",
            '"',
            "'",
            "\\",
            "<",
            "}",
            "]",
            "```",
            "</tool_call>",
            "</parameter>",
            "<|assistant|>",
        ]
        count = self._rng.choice([1, 1, 1, 2, 3])
        return "".join(self.word() + self._rng.choice(["", "", *between]) for _ in range(count))

    def value(self, depth: int = 0) -> Any:
        """A JSON value."""
        rng = self._rng
        kind = rng.randrange(8 if depth < 2 else 5)
        if kind < 3:
            return self.text()
        if kind < 5:
            return rng.choice([9_700_000 + self._numbers.pop(), -1.5, True, False, None, "", 10**25])
        if kind < 6:
            return [self.value(depth + 1) for _ in range(rng.randrange(3))]
        return {self.word(): self.value(depth + 1) for _ in range(rng.randrange(3))}


def written(rng: random.Random, name: str) -> tuple[str, list[str]]:
    """An answer of a format, with text and thinking, and the names of the functions that it calls."""
    payload = Payload(rng)
    names = [rng.choice(["get_weather", "f", f"g{index}"]) for index in range(rng.choice([1, 1, 2, 3]))]
    calls = [
        ToolCall(
            f"id{rng.randrange(10**6, 10**7)}",
            name_,
            json.dumps({rng.choice(["city", payload.word()]): payload.value() for _ in range(rng.randrange(4))}),
        )
        for name_ in names
    ]
    thought = f"<think>{payload.text()}</think>\n" if rng.random() < 0.2 else ""
    before = payload.text() + rng.choice(["", "\n", " "]) if rng.random() < 0.3 else ""
    after = rng.choice(["", "\n"]) + payload.text() if rng.random() < 0.3 else ""
    return thought + before + toolcalls.get(name).dump(calls) + after, names


def mutated(rng: random.Random, text: str) -> str:
    """A text with some of its pieces left out, doubled, exchanged or added to, and perhaps cut."""
    tokens = _TOKEN.findall(text)
    for _ in range(rng.randrange(4)):
        place = rng.randrange(len(tokens) + 1)
        match rng.randrange(5):
            case 0:
                del tokens[place : place + rng.choice([1, 1, 1, 5])]
            case 1:
                tokens.insert(place, rng.choice(MARKS))
            case 2:
                tokens[place:place] = tokens[place : place + rng.choice([1, 1, 3, 20])]
            case 3:
                other = rng.randrange(len(tokens) + 1)
                if max(place, other) < len(tokens):
                    tokens[place], tokens[other] = tokens[other], tokens[place]
            case _:
                tokens[place : place + 1] = list("".join(tokens[place : place + 1]))[: rng.randrange(4)]
    whole = "".join(tokens)
    return whole[: rng.randrange(len(whole) + 1)] if rng.random() < 0.15 else whole


def payload_of(text: str) -> set[str]:
    """The payload that is whole in a text."""
    return set(_PAYLOAD.findall(text))


def said(events: Iterable[Event]) -> str:
    """All that an answer says: its text, thinking, calls with their names, ids and arguments, and invalid calls."""
    return "\n".join(_said(list(events)))


def _said(events: list[Event]) -> Iterator[str]:
    broken = {event.index for event in events if isinstance(event, CallInvalid)}
    for event in events:
        match event:
            case Text() | Reasoning():
                yield event.text
            case CallStart():
                yield f"{event.name} {event.id}"
            case CallDelta() if event.index not in broken:
                yield event.arguments
            case CallInvalid():
                yield event.raw


def check(events: list[Event]) -> None:
    """Whether events that are merged are those of an answer: each call begun once, then its arguments, whole."""
    starts: list[int] = []
    over: set[int] = set()
    for event in events:
        if isinstance(event, CallStart):
            assert event.name
            starts.append(event.index)
        elif isinstance(event, CallDelta):
            assert event.index in starts
            assert event.index not in over
        elif isinstance(event, CallInvalid):
            assert event.error
            assert event.index not in over
            over.add(event.index)
    assert sorted({*starts, *over}) == list(range(len({*starts, *over})))
    assert len(starts) == len(set(starts))
    for index in set(starts) - over:
        arguments = "".join(
            event.arguments for event in events if isinstance(event, CallDelta) and event.index == index
        )
        assert isinstance(json.loads(arguments), dict)
