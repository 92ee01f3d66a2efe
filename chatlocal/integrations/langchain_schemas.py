"""The ways LangChain's users write a schema, and reading an answer back into what they asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.utils.function_calling import convert_to_json_schema
from typing_extensions import is_typeddict

from chatlocal.engine.constraints import validation
from chatlocal.engine.constraints.schema_source import is_v1_model, schema_of, type_adapter
from chatlocal.engine.errors import UnsupportedInput


@dataclass(frozen=True, slots=True)
class Schema:
    """`json_schema` constrains the answer; `check` reads a whole answer (OutputInvalid); `build` a partial value.

    `build` raises ValueError for a value that does not validate (yet).
    """

    name: str
    json_schema: dict[str, Any]
    check: Callable[[str], Any]
    build: Callable[[Any], Any]


def read_schema(schema: Any) -> Schema:
    """A JSON Schema, a tool or function in OpenAI's shape, a Pydantic class (v2 or v1), a TypedDict or another type.

    A TypedDict's answer is a plain dict. UnsupportedInput for what Pydantic does not understand.
    """
    if isinstance(schema, Mapping):
        return _of_dict(schema)
    if is_typeddict(schema):
        return _plain(schema.__name__, _of_typed_dict(schema))
    name = getattr(schema, "__name__", "answer")
    build = schema.parse_obj if is_v1_model(schema) else type_adapter(schema).validate_python
    return Schema(name, schema_of(schema), lambda text: validation.check(schema, text), build)


def as_format(schema: Schema | None) -> dict[str, Any]:
    """The arguments of a call that ask for JSON of this schema, or for any object."""
    if schema is None:
        return {"response_format": {"type": "json_object"}}
    form = {"type": "json_schema", "json_schema": {"name": schema.name, "schema": schema.json_schema}}
    return {"response_format": form}


def as_call(schema: Schema) -> dict[str, Any]:
    """The arguments of a call that demand this schema's tool. UnsupportedInput for a schema of no object."""
    if schema.json_schema.get("type", "object") != "object":
        raise UnsupportedInput(
            f"The arguments of a call are an object, and {schema.name} is not: use method='json_schema'."
        )
    parameters = dict(schema.json_schema)
    parameters.pop("title", None)
    function = {"name": schema.name, "description": parameters.pop("description", ""), "parameters": parameters}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": schema.name}},
        "parallel_tool_calls": False,
    }


def _of_dict(schema: Mapping[str, Any]) -> Schema:
    function = schema.get("function", schema)
    for key in ("parameters", "schema", "input_schema"):  # of a tool, of a response_format, of Anthropic's tools
        if "name" in function and isinstance(function.get(key), Mapping):
            described = {"description": function["description"]} if function.get("description") else {}
            return _plain(function["name"], {**described, **function[key]})
    return _plain(str(schema.get("title", "answer")), dict(schema))


def _of_typed_dict(schema: Any) -> dict[str, Any]:
    """langchain_core's reading, which knows its users' Annotated[type, default, "description"]."""
    try:
        return convert_to_json_schema(schema)
    except TypeError:  # it cannot read NotRequired and Required
        return dict(schema_of(schema))


def _plain(name: str, json_schema: dict[str, Any]) -> Schema:
    return Schema(name, json_schema, lambda text: validation.check(json_schema, text), lambda value: value)
