"""Tools, calls and results as JSON text, the way mistral-common writes them (its instruct.py, versions 2 to 7).

JSON that a model or a tool wrote is written anew, so that its spaces and escapes are those of the format; what is not
JSON becomes a JSON string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import jsonschema

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Tool, ToolCall

# mistral-common's rule for the names of functions, in declarations, calls and results.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def declared(tools: Iterable[Tool], format: str) -> str:
    """The list of tools. UnsupportedInput for a name or parameters that the format does not take."""
    return _list(_declared(tool, format) for tool in tools)


def called(calls: Iterable[ToolCall], *, ids: bool) -> str:
    """The list of calls, with their ids or without."""
    return _list(_called(call, ids) for call in calls)


def named_result(name: str, content: str) -> str:
    """A result as version 2 writes it: a list of one, with the name of the function."""
    return _list([f'{{"name": {_json(name)}, "content": {_embedded(content)}}}'])


def identified_result(call_id: str, content: str) -> str:
    """A result as version 3 writes it: an object with the id of the call."""
    return f'{{"content": {_embedded(content)}, "call_id": {_json(call_id)}}}'


def check_name(name: str, format: str, where: str) -> None:
    """UnsupportedInput for a function's name that the format does not take."""
    if not _NAME.fullmatch(name):
        raise UnsupportedInput(
            f"The {format} format takes function names of 1 to 64 letters, digits, _ and -, and {where} has {name!r}:"
            " give the function such a name."
        )


def _declared(tool: Tool, format: str) -> str:
    check_name(tool.name, format, "a tool")
    try:
        parameters = _json(tool.parameters)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedInput(f"The parameters of the tool {tool.name} cannot be written as JSON: {error}") from error
    if fault := _schema_fault(parameters):
        raise UnsupportedInput(
            f"The {format} format takes parameters that are a JSON Schema of draft 7, and those of the tool"
            f" {tool.name} are not: {fault}"
        )
    function = f'{{"name": {_json(tool.name)}, "description": {_json(tool.description)}, "parameters": {parameters}}}'
    return f'{{"type": "function", "function": {function}}}'


@lru_cache(maxsize=256)
def _schema_fault(schema: str) -> str | None:
    try:
        jsonschema.Draft7Validator.check_schema(json.loads(schema))
    except jsonschema.SchemaError as error:
        return error.message[:300]
    return None


def _called(call: ToolCall, ids: bool) -> str:
    written = f'"name": {_json(call.name)}, "arguments": {_embedded(call.arguments)}'
    return f'{{{written}, "id": {_json(call.id)}}}' if ids else f"{{{written}}}"


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _embedded(text: str) -> str:
    """A text as a JSON value: what it says where it is JSON, {} where it is empty, else the text as a string."""
    try:
        value = _json(json.loads(text or "{}"))
        value.encode()
    except (ValueError, RecursionError):  # numbers and nesting beyond Python's limits, and half surrogates, as well
        return _json(text)
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
