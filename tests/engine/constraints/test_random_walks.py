"""Random text under the grammars of Python types: all of it must validate."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import UUID4, AwareDatetime, Base64Bytes, BaseModel, Field, NaiveDatetime
from typing_extensions import TypedDict

from chatlocal.engine import constraints
from tests.engine.constraints.walking import walk
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


class Color(Enum):
    red = "red"
    awkward = 'qu"o\\te/'
    chinese = "红"
    three = 3
    none = None


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Chain(BaseModel):
    text: str
    next: Chain | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    meows: int


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: float = 1.0


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")
    since: datetime.date
    notes: dict[str, list[int]] = {}


class Movie(TypedDict, total=False):
    title: str
    year: int


@dataclass
class Point:
    x: int
    tags: list[str]


KINDS = [
    *(
        Color,
        Tree,
        Chain,
        Owner,
        Movie,
        Point,
        Any,
        None,
        int,
        float,
        str,
        bool,
        Decimal,
        uuid.UUID,
        UUID4,
        Base64Bytes,
    ),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, AwareDatetime, NaiveDatetime),
    *(Cat | Dog, list[int | None], tuple[int, str], set[int], dict[int, str], dict[Color, int], dict[uuid.UUID, int]),
    Annotated[int, Field(ge=-5, le=17)],
    Annotated[int, Field(multiple_of=7, ge=100)],
    Annotated[float, Field(gt=0, le=1)],
    Annotated[Decimal, Field(max_digits=5, decimal_places=2)],
    Annotated[Decimal, Field(ge=0)],
    Annotated[str, Field(pattern=r"^[A-Z]{2}\d{3}$")],
    Annotated[str, Field(pattern=r'[^\\"]+x$', min_length=3, max_length=6)],
    Annotated[list[int], Field(min_length=1, max_length=3)],
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_random_text_validates(kind):
    constraint = constraints.compile(constraints.json_schema(kind), TOKENIZER)
    for seed in range(8):
        text = walk(constraint, TOKENIZER, seed)
        assert constraint.accepts(text)
        constraints.validation.check(kind, text)
