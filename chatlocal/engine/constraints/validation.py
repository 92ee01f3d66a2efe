"""The check after generation: a grammar guarantees the shape, this guarantees the rest."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import ValidationError

from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.constraints.schema_source import is_v1_model, type_adapter
from chatlocal.engine.errors import OutputInvalid, UnsupportedSchema


def check(schema_or_type: Any, text: str) -> Any:
    """Read JSON text and validate it: an instance of the type, or the plain value for a JSON Schema.

    OutputInvalid, with the text in `raw`, names each place that fails. Formats are checked as far as jsonschema can
    with what is installed. UnsupportedSchema or UnsupportedInput when the schema or type itself is wrong.
    """
    if isinstance(schema_or_type, (Mapping, bool)):
        return _check_schema(schema_or_type, text)
    if is_v1_model(schema_or_type):
        return _check_v1(schema_or_type, text)
    adapter = type_adapter(schema_or_type)
    _parse(text)
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise OutputInvalid(f"The answer does not fit {_name(schema_or_type)}: {_failures(error)}", text) from error


def _check_schema(schema: Any, text: str) -> Any:
    validator = checker(schema if isinstance(schema, bool) else dict(schema))
    value = _parse(text)
    try:
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
    except re.error as error:
        raise UnsupportedSchema("pattern", "", f"Python cannot read {error.pattern!r}: {error}") from error
    if errors:
        listed = "; ".join(f"{_place(error.absolute_path)}: {error.message[:200]}" for error in errors[:5])
        raise OutputInvalid(f"The answer does not fit the schema: {listed}", text)
    return value


def _check_v1(model: Any, text: str) -> Any:
    value = _parse(text)
    try:
        return model.parse_obj(value)
    except ValueError as error:  # pydantic.v1's ValidationError, and what a validator of the model raises
        raise OutputInvalid(f"The answer does not fit {_name(model)}: {error}", text) from error


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_not_json, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise OutputInvalid(f"The answer cannot be read as JSON: {error}", text) from error


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    # JSON has no largest number; Python's infinity could not be written back as JSON.
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond the range of double-precision numbers")
    return number


def _failures(error: ValidationError) -> str:
    return "; ".join(f"{_place(item['loc'])}: {item['msg']}" for item in error.errors(include_url=False)[:5])


def _place(parts: Any) -> str:
    return "/" + "/".join(map(str, parts))


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
