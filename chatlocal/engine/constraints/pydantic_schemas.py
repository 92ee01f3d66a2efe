"""Pydantic's JSON Schema, narrowed where it says less than Pydantic then asks for.

A plain `string` for a Decimal, a duration or an int as a key would let text through that no validator takes.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


class NarrowSchemas(GenerateJsonSchema):
    """For validation mode. The formats that it adds are those of `formats.py`."""

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
        if limited:
            return number  # a bound on a number written as a string has no schema
        if digits is None:
            number |= {"minimum": -1e15, "maximum": 1e15}  # without bounds 1e999 could come, which is infinite
        whole = 28 if digits is None else max(digits - (places or 0), 1)
        fraction = (28 if digits is None else 0) if places is None else places
        pattern = rf"^-?\d{{1,{whole}}}" + (rf"(?:\.\d{{1,{fraction}}})?$" if fraction else "$")
        return {"anyOf": [number, {"type": "string", "pattern": pattern}]}

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        zone = schema.get("tz_constraint")
        names = {"aware": "date-time", "naive": "naive-date-time", None: "local-date-time"}
        return {"type": "string", "format": names.get(zone, "date-time")}

    def timedelta_schema(self, schema: Any) -> dict[str, Any]:
        return {"type": "string", "format": "time-delta"}

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        described = super().dict_schema(schema)
        if schema.get("keys_schema", {}).get("type") == "int":
            described["propertyNames"] = {"pattern": r"^(?:0|-?[1-9]\d{0,17})$"}
        return described
