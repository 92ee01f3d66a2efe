"""Keyword arguments of one LlamaIndex call -> sampling, time limit and the form of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from chatlocal.engine.call_arguments import family_options, read_logprobs, read_response_format, refuse_unknown
from chatlocal.engine.constraints import Spec
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling

SAMPLING_NAMES = tuple(one.name for one in fields(Sampling) if one.name != "logprobs")

# Arguments of the core for servers and tools. DocumentContextExtractor sends extra_headers to every model.
_ACCEPTED_EMPTY = ("tools", "tool_choice", "tool_required", "allow_parallel_tool_calls", "parallel_tool_calls")
_IGNORED = ("extra_headers",)
_OTHERS = ("chat_template_kwargs", "max_new_tokens", "timeout", "response_format", "logprobs", "top_logprobs")
_NAMES = (*SAMPLING_NAMES, *_OTHERS, *_ACCEPTED_EMPTY, *_IGNORED)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one call asks for; `timeout` is in seconds.

    `spec` constrains the answer, and `schema` is the JSON Schema to ask the model for. A bare JSON object is
    constrained and not asked for, as with OpenAI. `family` are the options of the prompt family.
    """

    sampling: Sampling
    timeout: float | None = None
    schema: Mapping[str, Any] | None = None
    spec: Spec | None = None
    family: Mapping[str, Any] = field(default_factory=dict)


def read_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> CallOptions:
    """The call's arguments over the defaults of the model object; None means not given.

    UnsupportedInput for an unknown name, with the near ones, for a value out of range, and for tools.
    """
    refuse_unknown(given, _NAMES, "This call")
    given = {name: value for name, value in given.items() if value is not None}
    _refuse_tools(given)
    if "max_new_tokens" in given:
        if "max_tokens" in given:
            raise UnsupportedInput("max_tokens and max_new_tokens are two names for one limit: give one of them.")
        given["max_tokens"] = given["max_new_tokens"]
    merged = {**defaults, **given}
    chosen = {name: merged[name] for name in SAMPLING_NAMES if merged.get(name) is not None}
    schema, spec = read_response_format(given.get("response_format"))
    family = family_options(defaults.get("chat_template_kwargs"), given.get("chat_template_kwargs"))
    return CallOptions(Sampling(**chosen, logprobs=read_logprobs(given)), merged.get("timeout"), schema, spec, family)


def _refuse_tools(given: Mapping[str, Any]) -> None:
    if given.get("tools"):
        raise UnsupportedInput("LocalLLM takes no tools: ask for structured output with as_structured_llm instead.")
    if given.get("tool_required") or given.get("tool_choice", "none") not in ("none", "auto"):
        raise UnsupportedInput("A tool call is demanded and LocalLLM takes no tools: leave the argument out.")
