"""Python types as users write them for structured output, with every kind of field."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import (
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    IPvAnyAddress,
    NaiveDatetime,
    RootModel,
    SecretStr,
    StringConstraints,
    computed_field,
)
from typing_extensions import NotRequired, TypedDict

# recursive ones


class Attribute(BaseModel):
    name: str
    value: str


class Component(BaseModel):
    """A tree of a user interface."""

    type: Literal["div", "button", "header", "section", "field", "form"]
    label: str
    children: list[Component]
    attributes: list[Attribute]


class LinkedList(BaseModel):
    value: int
    next: LinkedList | None = None


class RequiredChain(BaseModel):
    """Each has another one, or says that it has none."""

    text: Annotated[str, Field(max_length=8)]
    next: RequiredChain | None


class BinaryTree(BaseModel):
    left: BinaryTree | None
    key: Annotated[int, Field(ge=0, lt=1000)]
    right: BinaryTree | None


class Number(BaseModel):
    number: float


class Sum(BaseModel):
    """The recursive kind is declared before the one that ends it: its keys come first in the grammar too."""

    add: Annotated[list[Sum | Product | Number], Field(min_length=2, max_length=3)]


class Product(BaseModel):
    left: Product | Sum | Number
    right: Product | Sum | Number


class Expression(RootModel[Sum | Product | Number]):
    """Mutual recursion in which every value opens an object."""


class Folder(BaseModel):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,15}$")]
    parts: list[Folder | File] = []


class File(BaseModel):
    name: Annotated[str, Field(pattern=r"\.(txt|md)$", max_length=24)]
    size: Annotated[int, Field(ge=0)]
    within: Folder | None = None


# values that are told apart


class Awkward(Enum):
    quoted = 'qu"o\\te/'
    empty = ""
    chinese = "红色"
    emoji = "🦥"
    lines = "a\nb\tc"
    looks_like_a_number = "3"
    three = 3
    negative = -7
    half = 0.5
    none = None
    true = True
    spaced = " a b "


class Level(IntEnum):
    low = 1
    high = 10


class Labels(BaseModel):
    mixed: Literal["a", 2, None, True, "2", 'b"', "ü"]
    colour: Awkward
    level: Level
    colours: list[Awkward] = Field(min_length=2, max_length=4)


class Cat(BaseModel):
    kind: Literal["cat"]
    meows: Annotated[int, Field(ge=1, le=9)]


class Dog(BaseModel):
    kind: Literal["dog", "puppy"]
    barks: float = 1.0


class Bird(BaseModel):
    kind: Literal["bird"] = "bird"
    wings: tuple[str, str]


class Owner(BaseModel):
    pet: Annotated[Cat | Dog | Bird, Field(discriminator="kind")]
    others: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(default=[], max_length=3)
    either: int | str | list[int] | Cat | None


class Reading(BaseModel):
    """A constrained list of unions."""

    values: Annotated[list[int | Annotated[str, Field(max_length=5)] | bool | None], Field(min_length=3, max_length=6)]
    pairs: list[tuple[Literal["x", "y"], float]] = Field(min_length=1)


# numbers


class Bounds(BaseModel):
    between: Annotated[int, Field(ge=-5, le=17)]
    above: Annotated[int, Field(gt=10**6)]
    below: Annotated[int, Field(lt=-3)]
    sevens: Annotated[int, Field(multiple_of=7, ge=100)]
    share: Annotated[float, Field(gt=0, le=1)]
    open: Annotated[float, Field(ge=-1.5, lt=2.25)]
    quarters: Annotated[float, Field(multiple_of=0.25, ge=0)]
    positive: Annotated[float, Field(gt=0)]


class Amounts(BaseModel):
    any: Decimal
    price: Annotated[Decimal, Field(max_digits=6, decimal_places=2)]
    total: Annotated[Decimal, Field(ge=0, max_digits=8, decimal_places=3)]
    rate: Annotated[Decimal, Field(gt=0, lt=1)]
    steps: Annotated[Decimal, Field(multiple_of=Decimal("0.05"), ge=0, le=10)]
    whole: Annotated[Decimal, Field(max_digits=5)]


# texts


class Texts(BaseModel):
    short: Annotated[str, Field(min_length=1, max_length=3)]
    long: Annotated[str, Field(min_length=30, max_length=40)]
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}\d{3}$")]
    somewhere: Annotated[str, Field(pattern=r"[0-9]+x", min_length=4, max_length=8)]
    ends: Annotated[str, Field(pattern=r'[^\\"]+!$', min_length=3, max_length=6)]
    either: Annotated[str, Field(pattern=r"^(yes|no|(may)?be)$")]
    slashes: Annotated[str, Field(pattern=r"^/([a-z]+/)*$", max_length=12)]
    word: Annotated[str, Field(pattern=r"\w+\s\w+")]


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_min_length=1)

    title: str
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=2, max_length=6)]
    lower: Annotated[str, StringConstraints(to_lower=True, max_length=4)]


class Times(BaseModel):
    day: datetime.date
    time: datetime.time
    moment: datetime.datetime
    duration: datetime.timedelta
    aware: AwareDatetime
    naive: NaiveDatetime


class Identifiers(BaseModel):
    id: uuid.UUID
    page: HttpUrl
    link: AnyUrl
    address: ipaddress.IPv4Address
    any_address: IPvAnyAddress
    path: Path
    secret: Annotated[SecretStr, Field(min_length=3)]


class Bytes(BaseModel):
    raw: bytes
    few: Annotated[bytes, Field(min_length=2, max_length=4)]
    encoded: Base64Bytes


# keys


class Dicts(BaseModel):
    free: dict[str, int]
    numbers: dict[int, str]
    days: dict[datetime.date, bool] = {}
    coloured: dict[Literal["red", "green"], float]
    forms: dict[Annotated[str, Field(pattern=r"^x-[a-z]+$")], list[int]]
    short: dict[Annotated[str, Field(min_length=2, max_length=3)], None] = Field(max_length=2)
    some: dict[str, bool] = Field(min_length=1)


class Aliased(BaseModel):
    name: str = Field(alias="full name")
    quote: int = Field(alias='the "quoted" one')
    city: str = Field(default="", alias="城市/stadt")
    slash: bool = Field(default=True, validation_alias="a\\b/c")


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")

    a: int
    b: str | None = None


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int] = Field(init=False)

    a: int
    inner: Forbidding


class Open(BaseModel):
    anything: Any
    object: dict[str, Any]
    list: list[Any]
    plain: dict


# collections


class Collections(BaseModel):
    tags: set[str]
    levels: frozenset[Level]
    fixed: tuple[int, str, bool]
    variadic: tuple[int, ...]
    empty: tuple[()]
    matrix: Annotated[
        list[Annotated[list[Annotated[int, Field(ge=0, le=9)]], Field(min_length=2, max_length=2)]],
        Field(min_length=2, max_length=3),
    ]


class Optionals(BaseModel):
    a: int | None = None
    b: str | None = "x"
    c: list[int] | None = None
    d: Annotated[int, Field(ge=3)] | None
    e: Cat | None = None
    f: bool = True
    stamp: datetime.datetime = Field(default_factory=datetime.datetime.now)

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * (self.a or 0)


# other ways to declare a type


@dataclass
class Point:
    x: float
    y: float
    tags: list[str] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    cast: list[Point]


class Partial(TypedDict, total=False):
    title: str
    rating: Literal[1, 2, 3]
    nested: Movie


class Pair(NamedTuple):
    first: int
    second: str = "x"


Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: int | None


class Table(RootModel[list[dict[str, int | str]]]):
    pass


TYPES: dict[str, Any] = {
    **{
        kind.__name__: kind
        for kind in (
            *(Component, LinkedList, RequiredChain, BinaryTree, Expression, Folder, Labels, Owner, Reading, Bounds),
            *(Amounts, Texts, Stripped, Times, Identifiers, Bytes, Dicts, Aliased, Forbidding, Allowing, Open),
            *(Collections, Optionals, Point, Movie, Partial, Pair, Table, Awkward, Level),
        )
    },
    "Page[Cat]": Page[Cat],
    "Page[Point]": Page[Point],
    "list[Component]": list[Component],
    "Cat | Dog": Cat | Dog,
    "Literal": Literal["a", 2, None],
    "dict[str, Page]": dict[str, Page[int]],
    "Any": Any,
}
