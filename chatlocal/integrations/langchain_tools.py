"""The ways LangChain's users write a tool -> OpenAI's shape, and what a call may ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from chatlocal.engine.constraints.schema_source import is_v1_model, schema_of
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Tool
from chatlocal.engine.toolcalls.tool_choice import ToolChoice, read_tool_choice


def openai_tools(tools: Iterable[Any], strict: bool | None = None) -> list[dict[str, Any]]:
    """Tools in OpenAI's shape: classes, functions, LangChain's tools, TypedDicts, and dicts of several APIs.

    `strict` allows no arguments beside those of the schema; the schema itself is enforced in any case.
    UnsupportedInput for what is no tool, and for tools that only a server has, such as web_search.
    """
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise UnsupportedInput(f"Tools come as a list, got {tools!r:.80}.")
    return [_openai_tool(tool, strict) for tool in tools]


def read_choice(choice: Any, tools: Iterable[Tool | Mapping[str, Any]]) -> ToolChoice:
    """What a call may or must call. UnsupportedInput for a name that none of the tools has.

    Two tools of one name are refused by the call, and not here: LangChain's users bind a class and its schema.
    """
    named = {tool.name: tool for tool in map(Tool.of, tools)}
    return read_tool_choice(choice, list(named.values()))


def _openai_tool(tool: Any, strict: bool | None) -> dict[str, Any]:
    if isinstance(tool, Tool):
        parameters = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return {"type": "function", "function": parameters}
    # langchain_core's strict reading wants parameters to be there.
    bare = isinstance(tool, Mapping) and "name" in tool and not {"parameters", "input_schema"} & set(tool)
    try:
        converted = convert_to_openai_tool(tool, strict=None if bare else strict)
    except PydanticUserError as error:
        raise UnsupportedInput(f"The arguments of the tool {_name(tool)} have no JSON Schema: {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise UnsupportedInput(f"{_name(tool)} cannot be read as a tool: {error}") from error
    Tool.of(converted)
    recursive = _recursive_schema(tool)
    if recursive is not None:
        converted["function"]["parameters"] = recursive
    return converted


def _recursive_schema(tool: Any) -> dict[str, Any] | None:
    """The schema of arguments that are a class which holds itself: langchain_core cuts it short, to anything at all."""
    kind = tool.tool_call_schema if isinstance(tool, BaseTool) else tool
    if not isinstance(kind, type) or not (is_v1_model(kind) or issubclass(kind, BaseModel)):
        return None
    schema: dict[str, Any] = schema_of(kind)
    definitions = schema.get("$defs") or schema.get("definitions") or {}
    reached = {name: _references(definition) for name, definition in definitions.items()}
    for _ in reached:
        reached = {name: names.union(*(reached[other] for other in names)) for name, names in reached.items()}
    return schema if any(name in names for name, names in reached.items()) else None


def _references(schema: Any) -> set[str]:
    """The definitions that a schema refers to."""
    if isinstance(schema, Mapping):
        own = {schema["$ref"].rpartition("/")[2]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*map(_references, schema.values()))
    return set().union(*map(_references, schema)) if isinstance(schema, list) else set()


def _name(tool: Any) -> str:
    return str(tool.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", f"{tool!r:.80}"))
