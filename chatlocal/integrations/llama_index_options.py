"""Keyword arguments of one LlamaIndex call -> sampling, time limit and the form of the answer."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from chatlocal.engine.constraints import Spec, json_schema
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling

SAMPLING_NAMES = tuple(field.name for field in fields(Sampling) if field.name != "logprobs")

# Arguments of the core for servers and tools. DocumentContextExtractor sends extra_headers to every model.
_ACCEPTED_EMPTY = ("tools", "tool_choice", "tool_required", "allow_parallel_tool_calls", "parallel_tool_calls")
_IGNORED = ("extra_headers",)
_OTHERS = ("max_new_tokens", "timeout", "response_format", "logprobs", "top_logprobs")
_NAMES = (*SAMPLING_NAMES, *_OTHERS, *_ACCEPTED_EMPTY, *_IGNORED)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one call asks for; `timeout` is in seconds.

    `spec` constrains the answer, and `schema` is the JSON Schema to ask the model for. A bare JSON object is
    constrained and not asked for, as with OpenAI.
    """

    sampling: Sampling
    timeout: float | None = None
    schema: Mapping[str, Any] | None = None
    spec: Spec | None = None


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
    schema, spec = _response_format(given.get("response_format"))
    return CallOptions(Sampling(**chosen, logprobs=_logprobs(given)), merged.get("timeout"), schema, spec)


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """UnsupportedInput for the first name that is not known, with the near ones."""
    known = sorted(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it takes {', '.join(known)}."
            raise UnsupportedInput(f"{what} does not take {name!r}: {hint}")


def _refuse_tools(given: Mapping[str, Any]) -> None:
    if given.get("tools"):
        raise UnsupportedInput("LocalLLM takes no tools: ask for structured output with as_structured_llm instead.")
    if given.get("tool_required") or given.get("tool_choice", "none") not in ("none", "auto"):
        raise UnsupportedInput("A tool call is demanded and LocalLLM takes no tools: leave the argument out.")


def _logprobs(given: Mapping[str, Any]) -> int | None:
    """OpenAI's pair: logprobs=True reports the chosen ids, top_logprobs=n the n likeliest too; logprobs=n does both."""
    asked = given.get("logprobs", False)
    if asked is False:
        if given.get("top_logprobs"):
            raise UnsupportedInput("top_logprobs needs logprobs=True.")
        return None
    return int(given.get("top_logprobs", 0) if asked is True else asked)


def _response_format(form: Any) -> tuple[Mapping[str, Any] | None, Spec | None]:
    """OpenAI's response_format: type text, json_object or json_schema."""
    kind = form.get("type") if isinstance(form, Mapping) else form
    if kind is None or kind == "text":
        return None, None
    if kind == "json_object":
        return None, json_schema({"type": "object"})
    if kind == "json_schema":
        named = form.get("json_schema") if isinstance(form, Mapping) else None
        schema = named.get("schema") if isinstance(named, Mapping) else None
        if isinstance(schema, Mapping):
            return schema, json_schema(dict(schema))
    raise UnsupportedInput(
        'response_format must be {"type": "text"}, {"type": "json_object"} or'
        f' {{"type": "json_schema", "json_schema": {{"name": ..., "schema": {{...}}}}}}, got {form!r}.'
    )
