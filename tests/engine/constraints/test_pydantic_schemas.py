"""Where Pydantic asks for more than its JSON Schema says, the grammar asks for it too, or it is reported as left."""

from __future__ import annotations

import datetime
import ipaddress
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import AliasPath, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from chatlocal.engine import constraints
from chatlocal.engine.constraints.keywords import shown
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from tests.engine.constraints.test_json_schema import TOKENIZER, compiled, expect
from tests.engine.constraints.walking import walk


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Recursive(BaseModel):
    kind: Literal["more"] = "more"
    inner: Annotated[Recursive | Cat, Field(discriminator="kind")]


class Hexadecimal(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex")
    data: Annotated[bytes, Field(max_length=2)]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number


class Ordered(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Ordered:
        if self.low > self.high:
            raise ValueError("the wrong way round")
        return self


COMPLETE: dict[str, tuple[Any, list[str], list[str]]] = {
    "tag with a default": (Owner, ['{"pet": {"kind": "cat"}}', '{"pet": {"kind": "dog"}}'], ['{"pet": {}}']),
    "recursive tag": (
        Recursive,
        ['{"kind": "more", "inner": {"kind": "cat"}}', '{"inner": {"kind": "more", "inner": {"kind": "cat"}}}'],
        ['{"inner": {}}', '{"inner": {"lives": 3}}', '{"inner": {"inner": {"kind": "cat"}}}'],
    ),
    "http": (
        pydantic.HttpUrl,
        ['"https://example.org/a?b=c#d"', '"http://127.0.0.1:8000"', '"http://a-b.example.org"'],
        ['"a:b"', '"ftp://example.org"', '"http://"', '"http://1.2.3.999"', '"http://xn--a.org"', '"http://a.org:0"'],
    ),
    "any url": (pydantic.AnyUrl, ['"https://example.org"', '"mailto:a@b.org"'], ['"http:"', '"example"']),
    "file url": (pydantic.FileUrl, ['"file:///a/b.txt"'], ['"http://a.org"']),
    "postgres": (pydantic.PostgresDsn, ['"postgresql://db.org:5432/name"'], ['":"', '"mysql://db.org"']),
    "address": (pydantic.IPvAnyAddress, ['"10.0.0.1"', '"::1"', '"fe80::1"'], ['"10.0.0.256"', '""', '"1::2::3"']),
    "network": (ipaddress.IPv4Network, ['"10.0.0.0/8"', '"10.1.2.0/24"', '"10.1.2.3/32"'], ['"10.1.2.3/8"', '""']),
    "network 6": (ipaddress.IPv6Network, ['"fe80:1:2:3::/64"', '"::1"', '"::/0"'], ['"::1/64"']),
    "interface": (ipaddress.IPv6Interface, ['"fe80::1/64"'], ['"fe80::1/129"']),
    "any network": (pydantic.IPvAnyNetwork, ['"10.0.0.0/8"'], ['"10.0.0.1/8"']),
    "few bytes": (Annotated[bytes, Field(min_length=1, max_length=3)], ['"abc"'], ['""', '"红红"', '"abcd"']),
    "hexadecimal": (Hexadecimal, ['{"data": "0aFF"}', '{"data": ""}'], ['{"data": "0"}', '{"data": "xx"}']),
    "path": (Path, ['"/etc/x"'], ["3"]),
    "stripped": (
        Annotated[str, StringConstraints(strip_whitespace=True, min_length=2, max_length=4)],
        ['"ab"', '"a b"', '"a\\nb"'],
        ['" a"', '"  "', '"a "', '"\\u00a0a"'],
    ),
    "stripped form": (
        Annotated[str, StringConstraints(strip_whitespace=True, pattern="^[a ]{2}$")],
        ['"aa"'],
        ['" a"', '"  "'],
    ),
    "complex": (complex, ['"1.5+2j"', '"3"'], ['""', '"1+"', '"j1"']),
    "fraction": (Fraction, ['"3/4"', '"-3"'], ['"3/0"', '"1.5.2"', '""']),
    "integers as keys": (dict[Annotated[int, Field(gt=0)], int], ['{"7": 1}'], ['{"0": 1}', '{"-7": 1}', '{"a": 1}']),
    "few integers as keys": (dict[Annotated[int, Field(ge=-1, lt=2)], int], ['{"-1": 1}', '{"1": 1}'], ['{"2": 1}']),
    "numbers as keys": (dict[float, int], ['{"1.5": 1}', '{"-2": 1}'], ['{"": 1}', '{"x": 1}']),
    "decimals as keys": (dict[Decimal, int], ['{"1.5": 1}'], ['{"x": 1}']),
    "booleans as keys": (dict[bool, int], ['{"true": 1, "false": 0}'], ['{"x": 1}']),
    "addresses as keys": (dict[ipaddress.IPv4Address, int], ['{"10.0.0.1": 1}'], ['{"10": 1}']),
    "a form of keys": (dict[Annotated[str, Field(pattern="^x")], int], ['{"xa": 1}', "{}"], ['{"a": 1}']),
    "decimals below 1": (Annotated[Decimal, Field(max_digits=3, decimal_places=3)], ["0.125"], ["1", '"8"', "0.1255"]),
}


@pytest.mark.parametrize("name", COMPLETE)
def test_the_grammar_asks_for_what_pydantic_does(name: str) -> None:
    kind, accepted, refused = COMPLETE[name]
    constraint = compiled(kind)
    assert constraint.left_to_validation == ()
    expect(constraint, accepted, refused)
    for text in accepted:
        constraints.validation.check(kind, text)
    for seed in range(6):
        constraints.validation.check(kind, walk(constraint, TOKENIZER, seed))


@pytest.mark.parametrize(
    ("kind", "left", "text"),
    [
        (Even, ('validator "Even.even" at /properties/number',), '{"number": 3}'),
        (Ordered, ('validator "Ordered.ordered" at /',), '{"low": 3, "high": 2}'),
        (list[Ordered], ('validator "Ordered.ordered" at /$defs/Ordered',), '[{"low": 3, "high": 2}]'),
        (pydantic.PastDate, ("now_op at /",), '"9999-01-01"'),
        (Annotated[datetime.date, Field(ge=datetime.date(2020, 1, 1))], ("ge at /",), '"2019-12-31"'),
        (Annotated[datetime.timedelta, Field(gt=datetime.timedelta(0))], ("gt at /",), '"PT0S"'),
        (pydantic.Json[list[int]], ("contentSchema at /",), '"x"'),
        (pydantic.ByteSize, ('validator "ByteSize._validate" at /',), '"1 parsec"'),
        (pydantic.Base64Str, ('validator "EncodedStr.decode_str" at /',), '"av8i"'),
        (dict[Annotated[int, Field(lt=7)], int], ("lt at /",), '{"8": 1}'),
        (Annotated[dict[str, int], Field(min_length=2)], ("minProperties at /",), '{"a": 1, "a": 2}'),
        (dict[Annotated[str, Field(pattern="^x", min_length=3)], int], ("propertyNames at /",), '{"x": 1}'),
        (Annotated[set[int], Field(min_length=2)], ("uniqueItems at /",), "[1, 1]"),
    ],
)
def test_the_rest_is_reported(kind: Any, left: tuple[str, ...], text: str) -> None:
    constraint = compiled(kind)
    assert constraint.left_to_validation == left
    assert constraint.accepts(text)
    with pytest.raises(OutputInvalid):
        constraints.validation.check(kind, text)


def test_functions_of_pydantic_that_ask_for_no_more_are_no_excuse() -> None:
    for kind in (
        pydantic.Base64Bytes,
        pydantic.HttpUrl,
        Path,
        pydantic.SecretStr,
        Annotated[list[int], Field(max_length=3)],
    ):
        assert compiled(kind).left_to_validation == ()


def test_a_field_without_a_key_of_its_own_is_refused() -> None:
    class Nested(BaseModel):
        first: str = Field(validation_alias=AliasPath("names", 0))

    with pytest.raises(UnsupportedInput, match="names"):
        constraints.json_schema(Nested)


def test_a_model_is_not_shown_what_is_reported() -> None:
    class Trip(BaseModel):
        tags: list[str]

        @field_validator("tags")
        @classmethod
        def some(cls, value: list[str]) -> list[str]:
            return value

    schema = json.loads(constraints.json_schema(Trip).source)
    assert "some" in json.dumps(schema)
    assert shown(schema) == Trip.model_json_schema()
