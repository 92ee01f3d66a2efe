"""Bounds of numbers, put so that the grammar backend keeps them and the numbers that are read back keep them too.

llguidance 1.9 takes 0 for a number above 0 and below 0.5, so an exclusive bound on the side of 0 becomes an inclusive
one right behind it. On the other side it cannot: of the digits of such a bound the backend refuses each beginning (2.7
where the maximum is 2.75). It counts bounds in 64 bits and writes 15 digits of them.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from chatlocal.engine.errors import UnsupportedSchema

# The largest double below 2**63, and where the backend's ranges of fractions end.
_LARGEST_INTEGER = 2**63 - 1024
_LARGEST_NUMBER = 9 * 10**17
# From here on a bound alone is too large for the backend, and needs one at its side.
_LARGE = 10**18
# What stands for 0 as an exclusive bound: a number that it still writes.
_SMALLEST = 1e-50
_DIGITS = 15
_INWARDS = Context(prec=_DIGITS, rounding=ROUND_CEILING)
# The backend counts remainders, apart from those of 2 and 5: 999983 takes it 8 s and 400 MB.
_MOST_REMAINDERS = 200_000


def bounds(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The bounds in a schema, as the backend keeps them.

    Bounds that lie further out than the backend counts are drawn in; UnsupportedSchema where nothing would be left.
    """
    whole = schema.get("type") == "integer"
    largest = _LARGEST_INTEGER if whole else _LARGEST_NUMBER
    out: dict[str, Any] = {}
    for keyword, exclusive, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        found = [(sign * schema[name], name == exclusive) for name in (keyword, exclusive) if name in schema]
        if not found:
            continue
        bound, strict = max(found)  # an exclusive one goes further in than the same number inclusive
        if whole:
            bound, strict = _integer(bound, strict), False
        elif strict and bound >= 0:
            bound, strict = _behind(bound), False
        else:
            bound = _written(bound)
        if bound > largest:
            raise UnsupportedSchema(keyword, path, f"the largest number that can be asked for is {largest:,}")
        out[exclusive if strict and bound >= -largest else keyword] = sign * max(bound, -largest)
    if out.get("minimum", 0) >= _LARGE:
        out.setdefault("maximum", largest)
    if out.get("maximum", 0) <= -_LARGE:
        out.setdefault("minimum", -largest)
    return out


def step(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The `multipleOf` in a schema. UnsupportedSchema where it would take the backend too long."""
    if "multipleOf" not in schema:
        return {}
    remainders = int("".join(map(str, Decimal(repr(schema["multipleOf"])).as_tuple().digits)))
    for factor in (2, 5):
        while remainders % factor == 0:
            remainders //= factor
    if remainders > _MOST_REMAINDERS:
        raise UnsupportedSchema("multipleOf", path, f"of factors other than 2 and 5 at most {_MOST_REMAINDERS:,}")
    return {"multipleOf": schema["multipleOf"]}


def _integer(bound: float, strict: bool) -> int:
    """The lowest integer of a lower bound that is a double."""
    low = math.floor(bound) + 1 if strict else math.ceil(bound)
    while int(float(low)) < low:  # the double next to it lies below
        low = int(math.nextafter(float(low), math.inf))
    return low


def _behind(bound: float) -> float:
    """A number right above a lower bound that is not negative."""
    if bound == 0:
        return _SMALLEST
    exact = Decimal(repr(bound))
    return float(_INWARDS.plus(exact + Decimal(1).scaleb(exact.adjusted() + 1 - _DIGITS)))


def _written(bound: float) -> float:
    """A lower bound in as many digits as the backend writes, rounded inwards."""
    exact = Decimal(repr(bound))
    rounded = _INWARDS.plus(exact)
    return bound if rounded == exact else float(rounded)
