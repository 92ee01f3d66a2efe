"""Arguments of a call in OpenAI's shape, which every front end takes: read once, here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from chatlocal.engine.constraints import Spec, json_schema
from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.errors import UnsupportedInput


def refuse_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """UnsupportedInput for the first name that is not known, with the near ones; `what` is what takes arguments."""
    known = sorted(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it takes {', '.join(known)}."
            raise UnsupportedInput(f"{what} does not take {name!r}: {hint}")


def read_logprobs(given: Mapping[str, Any]) -> int | None:
    """How many alternatives to report for each id; None for no report.

    logprobs=True reports the chosen ids, top_logprobs=n the n likeliest too, and logprobs=n is short for both.
    """
    asked, top = given.get("logprobs"), given.get("top_logprobs")
    if asked is None or asked is False:
        if top:
            raise UnsupportedInput("top_logprobs needs logprobs=True.")
        return None
    count = (top or 0) if asked is True else asked
    if not isinstance(count, int):
        raise UnsupportedInput(f"logprobs and top_logprobs count ids, got {count!r}.")
    return count


def read_response_format(form: Any) -> tuple[Mapping[str, Any] | None, Spec | None]:
    """The JSON Schema to ask the model for, and the constraint, of OpenAI's response_format, or of a Spec in its place.

    A Spec and a bare JSON object are constrained and not asked for, as with OpenAI: the prompt should ask.
    UnsupportedSchema for what is not a JSON Schema.
    """
    match form:
        case None | {"type": "text"}:
            return None, None
        case Spec():
            return None, form
        case {"type": "json_object"}:
            return None, json_schema({"type": "object"})
        case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}}:
            checker(dict(schema))  # before the schema is put into words
            return schema, json_schema(dict(schema))
    raise UnsupportedInput(
        "response_format must be {'type': 'text'}, {'type': 'json_object'}, {'type': 'json_schema', 'json_schema':"
        f" {{'name': ..., 'schema': {{...}}}}}} or a spec of chatlocal.engine.constraints, got {form!r}."
    )


# What the engine takes beside a family's options.
_NO_OPTIONS = frozenset(
    ("messages", "tools", "tool_choice", "parallel_tool_calls", "spec", "answer_schema", "sampling", "timeout")
)


def family_options(own: Mapping[str, Any] | None, given: Any) -> dict[str, Any]:
    """Options for the prompt family: the call's over the model object's, and a merged system text unless they say no.

    Frameworks put system messages everywhere, so they go into a user turn where a model has no place for them.
    UnsupportedInput when the call's are no mapping, or name what is no option of a prompt.
    """
    for options in (own, given):
        if options is not None and not isinstance(options, Mapping):
            raise UnsupportedInput(
                f"chat_template_kwargs takes a dict, such as {{'enable_thinking': False}}, got {options!r}."
            )
        if taken := sorted(_NO_OPTIONS & set(options or ())):
            raise UnsupportedInput(f"{', '.join(taken)} cannot be set by chat_template_kwargs: pass it to the call.")
    return {"merge_system": True, **(own or {}), **(given or {})}
