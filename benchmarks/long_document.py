"""A document of any length: visits to a harbour, in English and Chinese, and what is in it."""

from __future__ import annotations

import random
from typing import NamedTuple

from pydantic import BaseModel, Field


class Visit(BaseModel):
    """A ship that came."""

    ship: str = Field(description="Name of the ship")
    city: str = Field(description="Where it came from")


class Placed(NamedTuple):
    """A visit, and where the ship's name begins in the text."""

    ship: str
    city: str
    start: int


_FIRST = ("Northern", "Silver", "Grey", "Little", "Old", "Bright", "Western", "Quiet")
_SECOND = ("Heron", "Petrel", "Anchor", "Lantern", "Willow", "Compass", "Sparrow", "Harbour")
_CITIES = ("Oslo", "Leeds", "Porto", "Bergen", "Cadiz", "Dublin", "Genoa", "Riga")
_SHIPS_ZH = ("海燕", "东风", "明珠", "远山", "白鹭", "长河")
_CITIES_ZH = ("杭州", "青岛", "厦门", "大连", "宁波", "广州")
_FILLERS = (
    "The wind turned in the night and the boats lay still until morning.",
    "Nobody on the quay remembered such a quiet month.",
    "It rained for three days, and the fish market stayed closed.",
    "那几天一直下雨，码头上没有人。",
    "The keeper wrote down the weather and put out the lamp.",
)


def long_document(characters: int, seed: int = 7) -> tuple[str, list[Placed]]:
    """A text of at least that many characters, and the visits in it in their order; the same for the same seed."""
    chance = random.Random(seed)
    text = ""
    visits = []
    while len(text) < characters:
        if chance.random() < 0.3:
            ship, city = f"{chance.choice(_SHIPS_ZH)}{len(visits)}号", chance.choice(_CITIES_ZH)
            before, between, after = "第二天，", "从", "来到港口。"
        else:
            ship = f"{chance.choice(_FIRST)} {chance.choice(_SECOND)} {len(visits)}"
            city = chance.choice(_CITIES)
            before, between, after = "On that day the ", " came in from ", ". "
        visits.append(Placed(ship, city, len(text) + len(before)))
        text += f"{before}{ship}{between}{city}{after}"
        for _ in range(chance.randrange(3)):
            text += f"{chance.choice(_FILLERS)} "
        if chance.random() < 0.3:
            text = f"{text.rstrip()}\n\n"
    return text, visits
