"""A chat template and what it takes: found out by rendering small conversations of our own and reading the result."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cached_property
from itertools import product
from typing import Any

from chatlocal.engine.errors import TemplateError
from chatlocal.engine.families import sandbox
from chatlocal.engine.messages import ChatMessage

_USER = {"role": "user", "content": "probequestion"}
_ANSWER = {"role": "assistant", "content": "probeanswer"}
_SYSTEM = {"role": "system", "content": "probesystem"}
_TOOL = {
    "type": "function",
    "function": {
        "name": "probetool",
        "description": "probedescription",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
_RESULT = {"role": "tool", "content": "proberesult", "tool_call_id": "probecall", "name": "probetool"}
_ROUNDS = tuple(
    {"role": role, "content": f"probe{role}{number}"} for number in range(3) for role in ("user", "assistant")
)
# Levels of lists and dicts in the arguments of a call; what is deeper stays text.
_DEEPEST = 64
_ALWAYS_GIVEN = frozenset({"messages", "tools", "add_generation_prompt"})


class Template:
    """One template with the variables that the tokenizer gives it (its special tokens). Everything is found out once.

    TemplateError when it is not valid Jinja.
    """

    def __init__(self, source: str, variables: dict[str, Any]) -> None:
        sandbox.compile_template(source)
        self.source = source
        self._variables = variables

    def render(self, variables: dict[str, Any], moment: datetime | None = None) -> str:
        """The text for messages, tools, add_generation_prompt and options as plain data, at a moment. TemplateError."""
        # transformers defines documents for every template, too.
        return sandbox.render(self.source, {"documents": None, **self._variables, **variables}, moment)

    def message(self, turn: ChatMessage) -> dict[str, Any]:
        """A turn as the template expects it. UnsupportedInput for images."""
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if self._takes_parts_only:
            message["content"] = [{"type": "text", "text": turn.text}]
        if turn.tool_calls:
            as_text, empty_is_none = self._call_style or (False, False)
            if empty_is_none and not turn.text:
                message["content"] = None
            message["tool_calls"] = [
                _call(call.id, call.name, call.arguments if as_text else _read_arguments(call.arguments))
                for call in turn.tool_calls
            ]
        optional = {
            "tool_call_id": turn.tool_call_id,
            "name": turn.name,
            "reasoning_content": turn.reasoning,
            "thinking": turn.reasoning,  # gpt-oss's name for it
        }
        return {**message, **{key: value for key, value in optional.items() if value is not None}}

    @cached_property
    def options(self) -> frozenset[str]:
        """The names of the variables that a caller may set."""
        return sandbox.variables_read(self.source) - _ALWAYS_GIVEN

    @property
    def tells_time(self) -> bool:
        """Whether it may write what day it is."""
        return sandbox.tells_time(self.source)

    @property
    def literals(self) -> str:
        """The texts that it writes by itself."""
        return sandbox.literal_text(self.source)

    @cached_property
    def written(self) -> str:
        """What it writes around turns of every role: markup that it puts together from pieces shows only there."""
        talks = ([_SYSTEM, *_ROUNDS], _ROUNDS, [_USER, _ANSWER, _RESULT])
        return "\0".join(self._probe([*talk], asking=True) or "" for talk in talks)

    def takes_system(self, index: int) -> bool:
        """Whether a system message at this index is written."""
        return self._takes_first_system if index == 0 else self._takes_later_system

    @cached_property
    def takes_repeated_roles(self) -> bool:
        """Whether turns of one role in a row are written."""
        again = {"role": "user", "content": "probeagain"}
        more = {"role": "assistant", "content": "probemore"}
        return self._writes([_USER, again, _ANSWER, more, _USER], "probeagain", "probeanswer", "probemore")

    @cached_property
    def renders_tools(self) -> bool:
        """Whether tools that are given are written."""
        return "probetool" in (self._probe([_USER], tools=[_TOOL]) or "")

    @property
    def renders_calls(self) -> bool:
        """Whether an assistant's tool calls are written."""
        return self._call_style is not None

    @cached_property
    def renders_results(self) -> bool:
        """Whether the results of tools are written, with a call before them or alone."""
        return self.renders_calls or self._writes([_USER, {"role": "tool", "content": "proberesult"}], "proberesult")

    @cached_property
    def after_answers(self) -> tuple[str, ...]:
        """What is written between an assistant's text and the user's next, after a first and a second answer.

        Else what is written behind an answer that is the last, and nothing when that is not known either.
        """
        words = [message["content"] for message in _ROUNDS[1:5]]
        found = re.search("(.*?)".join(map(re.escape, words)), self._probe([*_ROUNDS]) or "", re.DOTALL)
        if found:
            return found[1], found[3]
        text = self._probe([_USER, _ANSWER]) or ""
        return (text.rpartition("probeanswer")[2],) if "probeanswer" in text else ()

    @cached_property
    def _takes_first_system(self) -> bool:
        return self._writes([_SYSTEM, _USER], "probesystem")

    @cached_property
    def _takes_later_system(self) -> bool:
        return self._writes([_USER, _ANSWER, _SYSTEM, _USER], "probesystem")

    @cached_property
    def _takes_parts_only(self) -> bool:
        """Whether text content must come as a list of parts: templates of some models that see."""
        plain, parts = (self._render_probe([message]) or "" for message in (_USER, _in_parts(_USER)))
        return "probequestion" not in plain and "probequestion" in parts

    @cached_property
    def _call_style(self) -> tuple[bool, bool] | None:
        """Whether arguments go in as text and whether empty content goes in as None; None when calls are not written.

        Templates expect a dict as transformers documents it, but DeepSeek's concatenate text and look for None.
        """
        for empty_is_none, as_text in product((False, True), repeat=2):
            arguments: Any = {"place": "probeplace"}
            call = _call("probecall", "probetool", json.dumps(arguments) if as_text else arguments)
            calling = {"role": "assistant", "content": None if empty_is_none else "", "tool_calls": [call]}
            text = self._probe([_USER, calling, _RESULT], tools=[_TOOL]) or ""
            _, _, written = text.rpartition("probequestion")
            if "probetool" in written and "probeplace" in written and _names_the_place(written):
                return as_text, empty_is_none
        return None

    def _writes(self, messages: list[dict[str, Any]], *texts: str) -> bool:
        """Whether all texts come out. True as well when not even a lone user turn does: then nothing is known."""
        written = self._probe(messages)
        if written is not None and all(text in written for text in texts):
            return True
        return self._probe([_USER]) is None

    def _probe(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, asking: bool = False
    ) -> str | None:
        """What is written for messages with plain text, None when they cannot be rendered."""
        if self._takes_parts_only:
            messages = [_in_parts(message) if message["content"] else message for message in messages]
        return self._render_probe(messages, tools, asking)

    def _render_probe(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, asking: bool = False
    ) -> str | None:
        try:
            return self.render({"messages": messages, "tools": tools, "add_generation_prompt": asking})
        except TemplateError:
            return None  # that it cannot be rendered is the answer


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _names_the_place(written: str) -> bool:
    """Whether the argument's name is written as data, and neither as Python spells it nor as JSON inside of JSON."""
    return "place" in written.replace("probeplace", "") and "'place'" not in written and '\\"place' not in written


def _call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _read_arguments(arguments: str) -> Any:
    """The arguments as data; text that is not a JSON object stays as the model wrote it."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return read if isinstance(read, dict) and _is_shallow(read) else arguments


def _is_shallow(value: Any) -> bool:
    """Whether data is nested no deeper than what reads it can follow."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for items in inner for item in items]
        if not level:
            return True
    return False
