"""Rules about an object's keys as such, and about how many there are, put as properties and alternatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any

from chatlocal.engine.constraints.formats import IPV4, PATTERNS
from chatlocal.engine.constraints.keywords import meaningful
from chatlocal.engine.constraints.overlap import finite
from chatlocal.engine.constraints.patterns import translate
from chatlocal.engine.constraints.references import References
from chatlocal.engine.errors import UnsupportedSchema

# minProperties and maxProperties over optional keys are spelled out as alternatives, up to so many.
MAX_KEY_SETS = 16

# Formats that the backend enforces by itself, but not of keys.
_OF_KEYS = {
    "uuid": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "ipv4": f"^{IPV4}$",
}


def named(schema: dict[str, Any], refs: References, valid: Callable[[Any, Any], bool], path: str) -> dict[str, Any]:
    """The schema with `propertyNames` put as properties or patternProperties. UnsupportedSchema where it cannot be."""
    rule = schema.get("propertyNames", True)
    while isinstance(rule, dict) and list(meaningful(rule)) == ["$ref"]:
        pointer = refs.pointer(rule["$ref"], path)
        refs.check_cycle(pointer, path)
        rule = refs.target(pointer)
    if rule is True or not (rule is False or (rule := meaningful(rule))):
        return schema
    if schema.get("properties") or schema.get("patternProperties"):
        raise UnsupportedSchema("propertyNames", path, "only where no properties are declared beside it")
    if rule is False:
        return schema | {"additionalProperties": False}
    value = schema.get("additionalProperties", True)
    listed = finite(rule)
    if listed is not None:
        names = [name for name in listed if isinstance(name, str) and valid(name, rule)]
        return schema | {"properties": dict.fromkeys(names, value), "additionalProperties": False}
    pattern = _key_pattern(rule)
    if pattern is None or translate(pattern) is None:
        raise UnsupportedSchema("propertyNames", path, "only as an enum, a pattern, a known format or a length")
    return schema | {"patternProperties": {pattern: value}, "additionalProperties": False} if pattern else schema


def _key_pattern(rule: dict[str, Any]) -> str | None:
    """The pattern that a rule for keys comes to, "" for any key; None when it has none."""
    if rule.get("type", "string") != "string":
        return None
    rule = {key: value for key, value in rule.items() if key != "type"}
    if not rule:
        return ""
    if list(rule) == ["pattern"]:
        return str(rule["pattern"])
    if list(rule) == ["format"]:
        return _OF_KEYS.get(rule["format"], PATTERNS.get(rule["format"]))
    if rule.keys() <= {"minLength", "maxLength"}:
        return rf"^[\s\S]{{{rule.get('minLength', 0)},{rule.get('maxLength', '')}}}$"
    return None


@dataclass(slots=True)
class Counts:
    """What minProperties and maxProperties come to: keywords as they are, parts that must hold, keywords left."""

    keywords: dict[str, int] = field(default_factory=dict)
    further: list[Any] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def counted(schema: dict[str, Any]) -> Counts:
    """The backend counts keys only where every declared one is required."""
    counts = Counts()
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    required = schema.get("required", [])
    names = [name for name, child in schema.get("properties", {}).items() if child is not False]
    optional = [name for name in names if name not in required]
    if not optional:
        if least - len(required) > 1:  # the backend counts a key that comes twice as two
            counts.left.append("minProperties")
        counts.keywords = {key: schema[key] for key in ("minProperties", "maxProperties") if key in schema}
        return counts
    fixed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    missing = least - len(required)
    if missing > 0:
        if fixed and comb(len(optional), missing) <= MAX_KEY_SETS:
            sets = combinations(optional, missing)
            counts.further.append({"anyOf": [{"required": list(chosen)} for chosen in sets]})
        else:
            counts.left.append("minProperties")
    excess = 0 if most is None else len({*required, *names}) - most
    if most is not None and not (fixed and excess <= 0):
        if fixed and comb(len(optional), excess) <= MAX_KEY_SETS:
            absent = combinations(optional, excess)
            counts.further.append({"anyOf": [{"properties": dict.fromkeys(chosen, False)} for chosen in absent]})
        else:
            counts.left.append("maxProperties")
    return counts
