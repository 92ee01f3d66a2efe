"""What one call asks for: the model's fields with the call's own arguments over them, read into the engine's terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from chatlocal.engine.call_arguments import family_options, read_logprobs, read_response_format, refuse_unknown
from chatlocal.engine.constraints import Spec, json_schema
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling, Tool
from chatlocal.integrations.langchain_schemas import read_schema
from chatlocal.integrations.langchain_tools import openai_tools, read_choice

# What a call may set of Sampling; `stop` comes on its own and `logprobs` has OpenAI's two arguments.
SAMPLING = tuple(one.name for one in fields(Sampling) if one.name not in ("stop", "logprobs"))

# `stream` steers langchain_core, which hands it on.
_ARGUMENTS = (
    *SAMPLING,
    "chat_template_kwargs",
    "function_call",
    "functions",
    "logprobs",
    "model",
    "parallel_tool_calls",
    "response_format",
    "stop",
    "stream",
    "timeout",
    "tool_choice",
    "tools",
    "top_logprobs",
)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a call may or must call. `legacy`: it was asked in OpenAI's older interface, and is answered there."""

    tools: Sequence[Tool] = ()
    choice: Any = None
    parallel: bool | None = None
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `schema` is what the answer must be, `function` the function whose arguments the answer is.

    `family` are the options of the prompt family.
    """

    sampling: Sampling
    model: str | None = None
    timeout: float | None = None
    schema: Mapping[str, Any] | None = None
    spec: Spec | None = None
    function: str | None = None
    tools: Tools = Tools()
    family: Mapping[str, Any] = field(default_factory=dict)


def read_call(fields: Mapping[str, Any], stop: Iterable[str] | None, arguments: Mapping[str, Any]) -> Call:
    """`fields` are the model's settings, `arguments` the call's, which win. UnsupportedInput for unknown ones."""
    refuse_unknown(arguments, _ARGUMENTS, "This call")
    settings = {**fields, **arguments}
    stop = settings.get("stop") if stop is None else stop
    _refuse_mixed(settings)
    function = _forced_function(settings)
    tools = Tools() if function is not None else _tools(settings)
    if function is not None:
        described = {"description": function.description} if function.description else {}
        schema: Mapping[str, Any] | None = {**function.parameters, **described}
        spec: Spec | None = json_schema(function.parameters)
    else:
        schema, spec = _response_format(settings.get("response_format"))
        read_choice(tools.choice, tools.tools)  # a wrong one is told of before a model is loaded
    return Call(
        sampling=Sampling(
            **{name: settings.get(name) for name in SAMPLING},
            stop=() if stop is None else stop,  # type: ignore[arg-type]  # texts of any kind are read there
            logprobs=read_logprobs(settings),
        ),
        model=settings.get("model"),
        timeout=settings.get("timeout"),
        schema=schema,
        spec=spec,
        function=None if function is None else function.name,
        tools=tools,
        family=family_options(fields.get("chat_template_kwargs"), arguments.get("chat_template_kwargs")),
    )


def _tools(settings: Mapping[str, Any]) -> Tools:
    """tools, tool_choice and parallel_tool_calls; or functions and function_call, where no single one is forced."""
    parallel = settings.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise UnsupportedInput(f"parallel_tool_calls is True, False or None, got {parallel!r}.")
    functions = settings.get("functions") or ()
    if not functions:
        return Tools(_read(settings.get("tools") or ()), settings.get("tool_choice"), parallel)
    choice = settings.get("function_call")
    if choice is None and settings.get("functions_required"):
        choice = "required"
    return Tools(_read(functions), choice, parallel=False, legacy=choice != "none")


def _refuse_mixed(settings: Mapping[str, Any]) -> None:
    new = [name for name in ("tools", "tool_choice", "parallel_tool_calls") if settings.get(name)]
    if settings.get("functions") and new:
        raise UnsupportedInput(
            f"functions and function_call are the older names of tools and tool_choice: leave out {', '.join(new)}."
        )


def _forced_function(settings: Mapping[str, Any]) -> Tool | None:
    """OpenAI's older interface: one of `functions` that `function_call={"name": ...}`, or its name alone, forces."""
    choice = settings.get("function_call")
    if choice in (None, "auto", "none"):
        return None
    functions = _read(settings.get("functions") or ())
    name = choice.get("name") if isinstance(choice, Mapping) else choice
    for function in functions:
        if function.name == name:
            return function
    names = [function.name for function in functions]
    raise UnsupportedInput(f"function_call asks for {name!r} and the functions are {names}.")


def _read(tools: Iterable[Any]) -> tuple[Tool, ...]:
    return tuple(Tool.of(tool) for tool in openai_tools(tools))


def _response_format(wish: Any) -> tuple[Mapping[str, Any] | None, Spec | None]:
    """OpenAI's response_format, or a class that stands for its schema, as create_agent passes it."""
    if isinstance(wish, type):
        schema = read_schema(wish).json_schema
        return schema, json_schema(schema)
    return read_response_format(wish)
