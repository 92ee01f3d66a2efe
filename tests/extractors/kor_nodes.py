"""Nodes and classes of tests/golden/kor.json, which Kor 3 was run on."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from chatlocal.extractors import Bool, Number, Object, Option, Selection, Text, from_pydantic
from chatlocal.extractors.nodes import Node

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "kor.json").read_text(encoding="utf-8"))
_KINDS: dict[str, type[Node]] = {"Object": Object, "Text": Text, "Number": Number, "Bool": Bool, "Selection": Selection}


def node_of(description: dict[str, Any]) -> Any:
    """The node that a golden entry describes."""
    settings = {key: value for key, value in description.items() if key not in ("type", "attributes", "options")}
    if "attributes" in description:
        settings["attributes"] = [node_of(each) for each in description["attributes"]]
    if "options" in description:
        settings["options"] = [Option(**option) for option in description["options"]]
    return _KINDS[description["type"]](**settings)


class Sentiment(enum.Enum):
    positive = "positive"
    negative = "negative"
    neural = "neural"


class Color(enum.Enum):
    red = "red"
    blue = "blue"


class Action(enum.Enum):
    play = "play"
    stop = "stop"


class Dianpin(BaseModel):
    aspect: str = Field(description="评价属性")
    sentiment_word: str = Field(description="对评价属性的评价词，从原文中抽取")
    sentiment: Sentiment | None = Field(description="对评价属性的情感，positive\negative\neural中的一个")
    reference: str = Field(description="评价的原文")


class Dog(BaseModel):
    name: str = Field(description="The dog's name")
    color: Color | None = Field(None, description="The dog's color")
    age: int | None = Field(None, description="age in years")
    tags: list[str] | None = Field(None, description="tags")
    good: bool = Field(True, description="is it a good dog")
    weight: float = Field(description="kg", examples=[("weighs 3kg", 3.0)])


class Player(BaseModel):
    song: list[str] | None = Field(None, description="The song(s) that the user would like to be played.")
    action: Action | None = Field(None, description="The action that should be taken; one of `play`, `stop`")
    mix: int | str = Field(0, description="number or string")


class Addr(BaseModel):
    street: str
    zip: int | None = Field(None, description="zip code")


class Person(BaseModel):
    name: str = Field(description="full name", examples=[("Jo Smith went home", "Jo Smith")])
    addr: Addr | None = Field(None, description="where")
    others: list[Addr] = Field([], description="more")


_CLASSES: dict[str, type[BaseModel]] = {
    "Dianpin": Dianpin,
    "Dog": Dog,
    "Player": Player,
    "Person": Person,
}


def schema_of(name: str) -> tuple[Any, Any]:
    """The node of a golden schema, and its validator, None where there is none."""
    schema = GOLDEN["schemas"][name]
    if "pydantic" not in schema:
        return node_of(schema["node"]), None
    made = schema["pydantic"]
    return from_pydantic(_CLASSES[made["model"]], **made["from_pydantic_kwargs"])
