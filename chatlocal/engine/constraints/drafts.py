"""Which draft of JSON Schema a schema is written in, and jsonschema's checker for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import jsonschema
from jsonschema import validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry

from chatlocal.engine.constraints.schema_shape import keeps_2020_12
from chatlocal.engine.errors import UnsupportedSchema

# Tried in this order for a schema without "$schema": older ones write items as a list, or exclusiveMinimum: true.
_DRAFTS = (jsonschema.Draft202012Validator, jsonschema.Draft7Validator, jsonschema.Draft4Validator)
# Whether a pattern compiles is for its reader to say: Python warns of some that ECMA takes.
_NO_FORMATS = jsonschema.FormatChecker(formats=())
_REF_STANDS_ALONE = (jsonschema.Draft7Validator, jsonschema.Draft6Validator, jsonschema.Draft4Validator)


def checker(schema: Any) -> Any:
    """A jsonschema validator for a schema, formats included, nothing fetched; kept for when it is asked for again.

    UnsupportedSchema when the schema breaks the rules of its draft.
    """
    try:
        return _checker(json.dumps(schema))
    except RecursionError:
        raise UnsupportedSchema("depth", "", "the schema is nested too deeply") from None


@lru_cache(maxsize=128)
def _checker(text: str) -> Any:
    schema = json.loads(text)
    named = isinstance(schema, dict) and "$schema" in schema
    drafts: list[Any] = [validator_for(schema, default=_DRAFTS[0])] if named else list(_DRAFTS)
    if jsonschema.Draft3Validator in drafts:
        raise UnsupportedSchema("$schema", "", "draft 3 is not read: use draft 4 or later")
    first_error: SchemaError | None = None
    for draft in drafts:
        try:
            if named or draft is not _DRAFTS[0] or not keeps_2020_12(schema):
                draft.check_schema(schema, format_checker=_NO_FORMATS)
        except SchemaError as error:
            first_error = first_error or error
        else:
            return _exactly(draft)(schema, registry=Registry(), format_checker=draft.FORMAT_CHECKER)
    assert first_error is not None
    path = "".join(f"/{part}" for part in first_error.absolute_path)
    raise UnsupportedSchema(str(first_error.validator), path, f"not a JSON Schema: {first_error.message[:300]}")


def ref_stands_alone(validator: Any) -> bool:
    """Up to draft 7 the keywords beside a $ref mean nothing."""
    return validator.META_SCHEMA in [draft.META_SCHEMA for draft in _REF_STANDS_ALONE]


def _multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """As numbers are written: 0.3 is a multiple of 0.1, which it is not as a quotient of doubles."""
    if validator.is_type(value, "number") and _exact(value) % _exact(step):
        yield ValidationError(f"{value!r} is not a multiple of {step}")


def _exact(number: float) -> Fraction:
    return Fraction(repr(number))


@cache
def _exactly(draft: Any) -> Any:
    return validators.extend(draft, {"multipleOf": _multiple_of})  # type: ignore[no-untyped-call]
