"""Bounds: what a grammar takes lies inside of them, and so does what is read back."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from chatlocal.engine import constraints
from chatlocal.engine.errors import UnsupportedSchema
from tests.engine.constraints.test_json_schema import TOKENIZER, compiled, expect
from tests.engine.constraints.walking import spelled, written

TEXTS = spelled(TOKENIZER)


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, ["0.1", "0.5", "0.000001"], ["0", "0.0", "0.51", "-0.1"]),
        ({"exclusiveMinimum": 2, "exclusiveMaximum": 2.5}, ["2.1", "2.49"], ["2", "2.0", "2.5"]),
        ({"exclusiveMaximum": 0, "minimum": -0.5}, ["-0.1", "-0.5"], ["0", "-0", "0.0", "-0.6"]),
        ({"exclusiveMaximum": 100}, ["99.99", "99", "-3", "99.9"], ["100", "100.0"]),
        ({"minimum": -1e300}, ["0.5", "-7", "12345678901234567890"], []),
        ({"minimum": -1e20, "maximum": 1e20}, ["0.5", "-7", "123456789012345678"], ["1e30", "1000000000000000000000"]),
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, ["0", "1234567890123456789"], [str(2**63)]),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, ["1234567890123456789"], ["-1", str(2**64)]),
        ({"type": "integer", "minimum": 10**18}, [str(10**18)], [str(10**18 - 1), "5"]),
        ({"type": "integer", "maximum": -(10**18)}, [str(-(10**18))], [str(1 - 10**18), "5"]),
        ({"type": "integer", "maximum": 2**53 + 1}, [str(2**53)], [str(2**53 + 2)]),
        ({"type": "integer", "exclusiveMinimum": 2.5, "exclusiveMaximum": 5}, ["3", "4"], ["2", "5"]),
        ({"minimum": 1, "exclusiveMinimum": 1}, ["1.5"], ["1", "1.0"]),
    ],
)
def test_bounds(schema: dict[str, Any], accepted: list[str], refused: list[str]) -> None:
    expect(compiled({"type": "number"} | schema), accepted, refused)


@pytest.mark.parametrize(
    "schema",
    [{"type": "integer", "minimum": 10**20}, {"type": "number", "minimum": 1e20}, {"type": "number", "maximum": -1e20}],
)
def test_what_lies_beyond_all_numbers_of_the_backend_is_named(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchema, match="largest number"):
        compiled(schema)


def test_no_accepted_number_is_outside() -> None:
    chosen = random.Random(0)
    values = [
        0,
        1,
        -1,
        0.5,
        -0.5,
        2.5,
        10,
        -100,
        0.01,
        1e-5,
        -1e-5,
        99.9,
        9.99,
        18.641,
        *(10**size for size in (7, 10)),
    ]
    for _ in range(60):
        low, high = sorted(chosen.sample(values, 2))
        schema: dict[str, Any] = {"type": "number", chosen.choice(["minimum", "exclusiveMinimum"]): low}
        schema[chosen.choice(["maximum", "exclusiveMaximum"])] = high
        constraint, valid = compiled(schema), Draft202012Validator(schema)
        near = [bound + Decimal(step) for bound in map(Decimal, (low, high)) for step in ("0", "1", "-0.1", "0.001")]
        texts = [format(number, ".12f") for number in near] + [format(number, ".1f") for number in near]
        texts += [text.rstrip("0").rstrip(".") for text in texts]
        assert [text for text in texts if constraint.accepts(text) and not valid.is_valid(json.loads(text))] == []


@pytest.mark.parametrize("bound", [1, 100, 2.5])
def test_a_fraction_is_not_written_so_long_that_it_is_read_as_its_bound(bound: float) -> None:
    schema = {"type": "number", "exclusiveMaximum": bound, "minimum": 0}
    state = compiled(schema).start()
    text = b""
    for _ in range(40):
        nines = [id for id in state.mask().nonzero().flatten().tolist() if set(TEXTS[id]) <= set(b"0123456789.")]
        best = max((id for id in nines if TEXTS[id]), key=lambda id: (TEXTS[id][:1] != b".", TEXTS[id]), default=None)
        if best is None:
            break
        state.advance(best)
        text += TEXTS[best]
    assert state.may_end
    assert constraints.validation.check(schema, text.decode()) < bound
    assert len(text) <= 17


def test_a_value_of_an_enum_may_have_more_digits() -> None:
    constraint = compiled({"enum": [0.30000000000000004, "x"]})
    assert written(constraint, TOKENIZER, "0.30000000000000004").may_end


def test_multiples_are_those_of_the_numbers_as_written() -> None:
    for step, value in ((0.1, "0.3"), (0.01, "1.15"), (0.05, "0.35"), (1e-7, "0.0000003")):
        assert compiled({"type": "number", "multipleOf": step}).accepts(value)
        assert constraints.validation.check({"multipleOf": step}, value) == float(value)
    with pytest.raises(ValueError, match="multiple"):
        constraints.validation.check({"multipleOf": 0.1}, "0.35")


def test_steps_that_take_too_long_are_refused_by_name() -> None:
    for step in (999_983, 0.999983):
        with pytest.raises(UnsupportedSchema, match="multipleOf"):
            compiled({"type": "number", "multipleOf": step})
    expect(compiled({"type": "integer", "multipleOf": 3_600_000}), ["0", "7200000"], ["3600001"])
