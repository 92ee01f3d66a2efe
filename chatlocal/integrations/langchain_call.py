"""What one call asks for: the model's fields with the call's own arguments over them, read into the engine's terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from chatlocal.engine.call_arguments import family_options, read_logprobs, read_response_format, refuse_unknown
from chatlocal.engine.constraints import Spec, json_schema
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ChatMessage, Sampling, Tool
from chatlocal.integrations.langchain_schemas import read_schema

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
    "response_format",
    "stop",
    "stream",
    "timeout",
    "tool_choice",
    "tools",
    "top_logprobs",
)


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
    family: Mapping[str, Any] = field(default_factory=dict)

    def prompt(self, messages: Iterable[ChatMessage], engine: Engine) -> tuple[ChatMessage, ...]:
        """The conversation, with the wish for the form where one was asked for."""
        return tuple(messages) if self.schema is None else engine.ask_for_json(messages, self.schema)


def read_call(fields: Mapping[str, Any], stop: Iterable[str] | None, arguments: Mapping[str, Any]) -> Call:
    """`fields` are the model's settings, `arguments` the call's, which win. UnsupportedInput for unknown ones."""
    refuse_unknown(arguments, _ARGUMENTS, "This call")
    refuse_tools(arguments.get("tools"), arguments.get("tool_choice"))
    settings = {**fields, **arguments}
    stop = settings.get("stop") if stop is None else stop
    function = _forced_function(settings)
    if function is not None:
        described = {"description": function.description} if function.description else {}
        schema: Mapping[str, Any] | None = {**function.parameters, **described}
        spec: Spec | None = json_schema(function.parameters)
    else:
        schema, spec = _response_format(settings.get("response_format"))
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
        family=family_options(fields.get("chat_template_kwargs"), arguments.get("chat_template_kwargs")),
    )


def refuse_tools(tools: Sequence[Any] | None, tool_choice: Any) -> None:
    """UnsupportedInput for tools, and for a choice that demands or allows a call."""
    if tools or tool_choice not in (None, "none"):
        raise UnsupportedInput(
            "tools and tool_choice are not taken: ask for structured output with with_structured_output, with"
            " response_format={'type': 'json_schema', ...}, or with functions=[...] and function_call={'name': ...}."
        )


def _forced_function(settings: Mapping[str, Any]) -> Tool | None:
    """OpenAI's older interface: one of `functions` that `function_call={"name": ...}` forces."""
    functions = [Tool.of(function) for function in settings.get("functions") or ()]
    choice = settings.get("function_call")
    if (not functions and choice is None) or choice == "none":
        return None
    names = [function.name for function in functions]
    if not isinstance(choice, Mapping):
        raise UnsupportedInput(
            f"functions are taken with a forced choice only: pass function_call={{'name': ...}} with one of {names}."
        )
    for function in functions:
        if function.name == choice.get("name"):
            return function
    raise UnsupportedInput(f"function_call asks for {choice.get('name')!r} and the functions are {names}.")


def _response_format(wish: Any) -> tuple[Mapping[str, Any] | None, Spec | None]:
    """OpenAI's response_format, or a class that stands for its schema, as create_agent passes it."""
    if isinstance(wish, type):
        schema = read_schema(wish).json_schema
        return schema, json_schema(schema)
    return read_response_format(wish)
