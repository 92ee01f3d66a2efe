"""Keyword arguments of one LlamaIndex call -> sampling, time limit, tools and the form of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from llama_index.core.tools import BaseTool

from chatlocal.engine.call_arguments import family_options, read_logprobs, read_response_format, refuse_unknown
from chatlocal.engine.constraints import Spec
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling, Tool, read_tools
from chatlocal.engine.toolcalls.tool_choice import read_tool_choice

SAMPLING_NAMES = tuple(one.name for one in fields(Sampling) if one.name != "logprobs")

_TOOLS = ("tools", "tool_choice", "tool_required", "allow_parallel_tool_calls", "parallel_tool_calls")
# DocumentContextExtractor of the core sends extra_headers to every model.
_IGNORED = ("extra_headers",)
_OTHERS = ("chat_template_kwargs", "max_new_tokens", "timeout", "response_format", "logprobs", "top_logprobs")
_NAMES = (*SAMPLING_NAMES, *_OTHERS, *_TOOLS, *_IGNORED)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one call asks for; `timeout` is in seconds.

    `spec` constrains the answer that is no call, and `schema` is the JSON Schema to ask the model for: of a bare JSON
    object it is not asked, as with OpenAI, nor where a call is demanded. `parallel` None leaves several calls to the
    model. `family` are the options of the prompt family.
    """

    sampling: Sampling
    timeout: float | None = None
    schema: Mapping[str, Any] | None = None
    spec: Spec | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: Any = None
    parallel: bool | None = None
    family: Mapping[str, Any] = field(default_factory=dict)


def read_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> CallOptions:
    """The call's arguments over the defaults of the model object; None means not given.

    UnsupportedInput for an unknown name, with the near ones, for a value out of range, and for a tool_choice that the
    tools cannot fulfil.
    """
    refuse_unknown(given, _NAMES, "This call")
    given = {name: value for name, value in given.items() if value is not None}
    if "max_new_tokens" in given:
        if "max_tokens" in given:
            raise UnsupportedInput("max_tokens and max_new_tokens are two names for one limit: give one of them.")
        given["max_tokens"] = given["max_new_tokens"]
    merged = {**defaults, **given}
    chosen = {name: merged[name] for name in SAMPLING_NAMES if merged.get(name) is not None}
    schema, spec = read_response_format(given.get("response_format"))
    tools = _tools(given.get("tools"))
    choice = _tool_choice(given)
    demanded = read_tool_choice(choice, tools).mode == "required"
    return CallOptions(
        Sampling(**chosen, logprobs=read_logprobs(given)),
        merged.get("timeout"),
        schema if not demanded else None,
        spec,
        tools,
        choice,
        _parallel(given),
        family_options(defaults.get("chat_template_kwargs"), given.get("chat_template_kwargs")),
    )


def tool_of(tool: BaseTool) -> dict[str, Any]:
    """A tool in OpenAI's shape, under its own name: the core's `to_openai_tool` puts another where OpenAI takes less,
    and then finds no tool of that name.
    """
    about = tool.metadata
    name = about.get_name()
    function = {
        "name": name,
        "description": _without_signature(about.description or "", name),
        "parameters": about.get_parameters_dict(),
    }
    return {"type": "function", "function": function}


def _without_signature(description: str, name: str) -> str:
    """What the docstring of a function says, without the signature that the core puts before it.

    The parameters tell the same, and small models take the types of a signature for values.
    """
    first, _, rest = description.partition("\n")
    return rest if rest.strip() and re.fullmatch(rf"{re.escape(name)}\(.*\)( -> .*)?", first) else description


def _tools(given: Any) -> tuple[Tool, ...]:
    listed = isinstance(given, (list, tuple))
    return read_tools([tool_of(tool) if isinstance(tool, BaseTool) else tool for tool in given] if listed else given)


def _tool_choice(given: Mapping[str, Any]) -> Any:
    """`tool_required` is the core's way to demand a call; a tool that is named is demanded already."""
    choice = given.get("tool_choice")
    if not given.get("tool_required"):
        return choice
    if choice in ("none", False) or choice == {"type": "none"}:
        raise UnsupportedInput("tool_required=True demands a call and tool_choice='none' forbids one: leave one out.")
    return "required" if choice in (None, "auto") or choice == {"type": "auto"} else choice


def _parallel(given: Mapping[str, Any]) -> bool | None:
    """The core's `allow_parallel_tool_calls` is a permission, OpenAI's `parallel_tool_calls` a wish, which wins."""
    wish: bool | None = given.get("parallel_tool_calls")
    return False if wish is None and given.get("allow_parallel_tool_calls") is False else wish
