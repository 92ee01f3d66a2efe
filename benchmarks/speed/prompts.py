"""Prompts that a measurement asks for: short ones about different things, and long ones of any length."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path
from typing import Any

TEXTS = Path(__file__).parents[1] / "data" / "extraction.jsonl"

TOPICS = (
    "the sea", "a lost key", "winter in Oslo", "the first train", "a garden", "two brothers", "an old clock", "bread",
    "the moon", "a long letter", "rain", "the market", "a blue door", "the last bus", "a lighthouse", "an island",
)  # fmt: skip

# One for each round, so that no side has read a prompt of this round before.
WISHES = (
    "Tell me a story about",
    "Write a letter to a friend about",
    "Explain to a child what is special about",
    "Describe in a few words a memory of",
)


def wish(number: int, round_number: int) -> str:
    """A short question: sixteen topics, four ways to ask, and behind these again with another beginning."""
    ask = WISHES[round_number % len(WISHES)]
    turn = round_number // len(WISHES)
    place = "" if number < len(TOPICS) else f"Number {number // len(TOPICS) + 1}. "
    return f"{place}{f'Chapter {turn + 1}. ' if turn else ''}{ask} {TOPICS[number % len(TOPICS)]}."


def english_texts() -> list[str]:
    """The English texts of the extraction items: a sentence or a few each."""
    texts = [json.loads(line)["text"] for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    return [text for text in texts if text.isascii()]


def long_text(tokenizer: Any, length: int, start: int = 0) -> str:
    """About `length` ids of text. Two that differ in `start` have no common beginning."""
    texts = english_texts()
    text = ""
    for number, next_text in enumerate(cycle(texts[start % len(texts) :] + texts[: start % len(texts)]), 1):
        text += f"{start + number}. {next_text}\n"
        if number % 8 == 0 and len(tokenizer(text, add_special_tokens=False)["input_ids"]) >= length:
            break
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return str(tokenizer.decode(ids[:length]))


def long_ids(tokenizer: Any, length: int, start: int = 0) -> list[int]:
    """Exactly `length` ids."""
    ids = tokenizer(long_text(tokenizer, length, start), add_special_tokens=False)["input_ids"]
    return list(islice(cycle(ids), length))
