"""Pydantic's JSON Schema, narrowed where it says less than Pydantic then asks for.

A plain `string` for a Decimal, a duration or a web address would let text through that no validator takes. What no
schema can say, such as a validator of the user's own, is named under `keywords.LEFT`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from chatlocal.engine.constraints.formats import url_pattern
from chatlocal.engine.constraints.keywords import LEFT
from chatlocal.engine.errors import UnsupportedInput

_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_TEMPORAL = (*_LIMITS, "now_op", "multiple_of")
# Functions of Pydantic's own that ask for more than the schemas beside them.
_ASKING = ("ByteSize._validate", "PathType.", "EncodedStr.decode_str", "ImportString")
# Its constraints on types that have none of their own; the schema says those on lengths.
_COMPARING = ("greater_", "less_", "multiple_of")

# Keys that are listed, and the form of keys that are numbers but no integers.
_MOST_KEYS = 100
_NUMBER_KEY = r"^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?$"


class NarrowSchemas(GenerateJsonSchema):
    """For validation mode. The formats that it adds are those of `formats.py`."""

    # numbers

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        number: dict[str, Any] = {"type": "number"}
        number |= {name: float(schema[key]) for key, name in _LIMITS.items() if schema.get(key) is not None}
        limited = len(number) > 1 or schema.get("multiple_of") is not None
        places, digits = schema.get("decimal_places"), schema.get("max_digits")
        if schema.get("multiple_of") is not None:
            number["multipleOf"] = float(schema["multiple_of"])
        elif places is not None or digits is not None:
            number["multipleOf"] = float(f"1e-{places or 0}")
        if digits is not None:
            top = 10.0 ** (digits - (places or 0))
            number.setdefault("exclusiveMinimum" if "minimum" not in number else "minimum", -top)
            number.setdefault("exclusiveMaximum" if "maximum" not in number else "maximum", top)
        whole = 28 if digits is None else digits - (places or 0)
        if limited or whole < 1:
            return number  # a bound on a number written as a string has no schema
        if digits is None:
            number |= {"minimum": -1e15, "maximum": 1e15}  # without bounds 1e999 could come, which is infinite
        fraction = (28 if digits is None else 0) if places is None else places
        pattern = rf"^-?\d{{1,{whole}}}" + (rf"(?:\.\d{{1,{fraction}}})?$" if fraction else "$")
        return {"anyOf": [number, {"type": "string", "pattern": pattern}]}

    def complex_schema(self, schema: Any) -> dict[str, Any]:
        part = r"\d{1,15}(?:\.\d{1,15})?"
        return {"type": "string", "pattern": rf"^-?{part}(?:[+-]{part}j)?$"}

    # times

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        zone = schema.get("tz_constraint")
        names = {"aware": "date-time", "naive": "naive-date-time", None: "local-date-time"}
        return _leaving({"type": "string", "format": names.get(zone, "date-time")}, _given(schema))

    def date_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving({"type": "string", "format": "date"}, _given(schema))

    def time_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving({"type": "string", "format": "time"}, _given(schema))

    def timedelta_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving({"type": "string", "format": "time-delta"}, _given(schema))

    # texts

    def str_schema(self, schema: Any) -> dict[str, Any]:
        described = super().str_schema(schema)
        stripped = schema.get("strip_whitespace", self._config.str_strip_whitespace)
        if stripped and (described.get("minLength") or "pattern" in described):
            # The length and the pattern are those of the text without the white space around it.
            bare = r"^\S(?:[\s\S]*\S)?$"
            return described | ({"allOf": [{"pattern": bare}]} if "pattern" in described else {"pattern": bare})
        return described

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        least, most = schema.get("min_length") or 0, schema.get("max_length")
        limits = f"{{{least},{'' if most is None else most}}}"
        written = self._config.val_json_bytes
        if written == "hex":
            return {"type": "string", "pattern": f"^(?:[0-9a-fA-F]{{2}}){limits}$"}
        if written == "base64":
            given = [key for key in ("min_length", "max_length") if schema.get(key) is not None]
            return _leaving({"type": "string", "format": "base64url"}, given)
        if most is None:
            return {"type": "string", "format": "binary", **({"minLength": least} if least else {})}
        return {"type": "string", "pattern": rf"^[\x20-\x7e]{limits}$"}  # a character of ASCII is one byte

    def url_schema(self, schema: Any) -> dict[str, Any]:
        # Written out, an address may get a slash more.
        longest = {"maxLength": schema["max_length"] - 1} if schema.get("max_length") else {}
        return {"type": "string", "pattern": url_pattern(schema.get("allowed_schemes")), **longest}

    def multi_host_url_schema(self, schema: Any) -> dict[str, Any]:
        return self.url_schema(schema)

    def json_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving(super().json_schema(schema), ["contentSchema"])

    # keys

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        described = super().dict_schema(schema)
        keys = schema.get("keys_schema", {})
        kind = keys.get("type")
        if kind == "int":
            described["propertyNames"], left = _integer_keys(keys)
            return _leaving(described, left)
        if kind in ("float", "decimal"):
            described["propertyNames"] = {"pattern": _NUMBER_KEY}
            limits = (*_LIMITS, "multiple_of", "max_digits", "decimal_places")
            return _leaving(described, [key for key in limits if keys.get(key) is not None])
        if kind == "bool":
            described["propertyNames"] = {"enum": ["true", "false"]}
        if "patternProperties" in described:
            described["additionalProperties"] = False  # keys of other forms are none
            if described.pop("propertyNames", None):  # lengths, which no grammar has beside a pattern
                return _leaving(described, ["propertyNames"])
        return described

    # parts

    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        """The tag is asked for in each part: with a default the schema of a part leaves it open, and then none fits."""
        described = super().tagged_union_schema(schema)
        tag = described.get("discriminator", {}).get("propertyName")
        if tag is None:
            return _leaving(described, ["discriminator"])
        return described | {"oneOf": [self._tagged(option, tag) for option in described["oneOf"]]}

    def _tagged(self, option: dict[str, Any], tag: str) -> dict[str, Any]:
        try:
            asked = self.resolve_ref_schema(option).get("required", ())
        except RuntimeError:  # of a recursive type, which is not known yet
            asked = ()
        return option if tag in asked else option | {"required": [*option.get("required", ()), tag]}

    def model_field_schema(self, schema: Any) -> dict[str, Any]:
        return super().model_field_schema(self._readable(schema))

    def dataclass_field_schema(self, schema: Any) -> dict[str, Any]:
        return super().dataclass_field_schema(self._readable(schema))

    def typed_dict_field_schema(self, schema: Any) -> dict[str, Any]:
        return super().typed_dict_field_schema(self._readable(schema))

    def _readable(self, field: Any) -> Any:
        alias = field.get("validation_alias")
        if isinstance(alias, list) and not any(isinstance(path, list) and len(path) == 1 for path in alias):
            raise UnsupportedInput(f"A field that is read from {alias!r} has no key of its own: give it a plain alias.")
        return field

    # functions

    def function_after_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving(super().function_after_schema(schema), _validators(schema))

    def function_before_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving(super().function_before_schema(schema), _validators(schema))

    def function_wrap_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving(super().function_wrap_schema(schema), _validators(schema))

    def function_plain_schema(self, schema: Any) -> dict[str, Any]:
        return _leaving(super().function_plain_schema(schema), _validators(schema))


def _leaving(schema: dict[str, Any], what: list[str]) -> dict[str, Any]:
    return schema | {LEFT: [*schema.get(LEFT, ()), *what]} if what else schema


def _given(schema: Any) -> list[str]:
    return [key for key in _TEMPORAL if schema.get(key) is not None]


def _integer_keys(keys: Any) -> tuple[dict[str, Any], list[str]]:
    """What propertyNames is for integers as keys, and which of their limits that does not say."""
    low = max(keys.get("ge", -math.inf), keys.get("gt", -math.inf) + 1)
    high = min(keys.get("le", math.inf), keys.get("lt", math.inf) - 1)
    step = keys.get("multiple_of") or 1
    if high - low < _MOST_KEYS:
        return {"enum": [str(key) for key in range(low, high + 1) if key % step == 0]}, []
    first = r"[1-9]\d{0,17}" if low >= 1 else r"(?:0|[1-9]\d{0,17})" if low >= 0 else r"(?:0|-?[1-9]\d{0,17})"
    said = {key for key in ("ge", "gt") if low in (0, 1)}
    return {"pattern": f"^{first}$"}, [key for key in (*_LIMITS, "multiple_of") if key in keys and key not in said]


def _validators(schema: Any) -> list[str]:
    """The function of a validator by its name, where it may ask for more than its schema says."""
    function = schema["function"]["function"]
    if isinstance(function, functools.partial):
        name = getattr(function.func, "__name__", "")
        asks = name.startswith(_COMPARING) or not function.func.__module__.startswith("pydantic")
    else:
        name = getattr(function, "__qualname__", type(function).__name__)
        own = str(getattr(function, "__module__", "")).partition(".")[0] in ("pydantic", "pydantic_core")
        asks = name.startswith(_ASKING) if own else True
    return [f'validator "{name}"'] if asks else []
