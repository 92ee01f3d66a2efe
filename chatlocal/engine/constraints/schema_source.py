"""From Python types to JSON Schema. What Pydantic can describe can be asked for; a dict is a schema already."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from chatlocal.engine.constraints.pydantic_schemas import NarrowSchemas
from chatlocal.engine.errors import UnsupportedInput


def schema_of(schema_or_type: Any) -> Any:
    """The JSON Schema of a type (aliases as keys, declared order), or the schema itself. UnsupportedInput otherwise."""
    if isinstance(schema_or_type, bool):
        return schema_or_type
    if isinstance(schema_or_type, Mapping):
        return dict(schema_or_type)
    if is_v1_model(schema_or_type):
        return schema_or_type.schema(by_alias=True)
    try:
        return type_adapter(schema_or_type).json_schema(by_alias=True, schema_generator=NarrowSchemas)
    except PydanticUserError as error:
        raise UnsupportedInput(f"Pydantic has no JSON Schema for {schema_or_type!r}: {error.message}") from error


def type_adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's adapter for a type. UnsupportedInput for what is not a type that Pydantic knows."""
    if isinstance(kind, (str, bytes, int, float, list, tuple, set, BaseModel)):
        raise UnsupportedInput(f"A schema is a dict or a type, got {kind!r}.")
    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise UnsupportedInput(f"Pydantic cannot describe {kind!r}: {error.message}") from error


def is_v1_model(value: Any) -> bool:
    """Whether it is a model class of Pydantic 1, which `pydantic.v1` still carries."""
    v1 = sys.modules.get("pydantic.v1")  # such a class exists only where that module was imported
    return v1 is not None and isinstance(value, type) and issubclass(value, v1.BaseModel)
