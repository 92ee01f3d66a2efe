"""Which calls one request allows or demands, in the ways that other APIs say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Tool


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`mode` says whether calls are kept out, left to the model, or demanded; `tools` are those that may be called."""

    mode: Literal["none", "auto", "required"]
    tools: tuple[Tool, ...]


def read_tool_choice(choice: Any, tools: Sequence[Tool]) -> ToolChoice:
    """What a request says about its tools.

    That is "auto" (None says the same), "none" (False), "required" ("any", True), a tool's name, or one of OpenAI's and
    Anthropic's dicts that say the same. UnsupportedInput for anything else, for a tool that is not there, for a tool
    without a name, for two of one name, and where a call is demanded and there are no tools.
    """
    names = [tool.name for tool in tools]
    if "" in names:
        raise UnsupportedInput("A tool has no name: give it one.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UnsupportedInput(f"Two tools have the name {twice[0]!r}: give each a name of its own.")
    wish = _wish(choice)
    if wish in ("none", False):
        return ToolChoice("none", ())
    if wish in ("auto", None):
        return ToolChoice("auto", tuple(tools))
    if wish in ("required", "any", True) and wish not in names:
        if not tools:
            raise UnsupportedInput(f"tool_choice={choice!r} demands a call and there are no tools: give at least one.")
        return ToolChoice("required", tuple(tools))
    named = tuple(tool for tool in tools if tool.name == wish)
    if not named:
        raise UnsupportedInput(f"tool_choice asks for {wish!r} and the tools are {', '.join(names) or 'none'}.")
    return ToolChoice("required", named)


def _wish(choice: Any) -> Any:
    """A word, a name, True, False or None."""
    match choice:
        case None | bool() | str():
            return choice
        case {"type": "function", "function": {"name": str() as name}}:
            return name
        case {"type": "tool" | "function", "name": str() as name}:
            return name
        case {"function": {"name": str() as name}} | {"name": str() as name}:
            return name
        case {"type": "auto" | "any" | "none" | "required" as word}:
            return word
    raise UnsupportedInput(
        "tool_choice takes 'auto', 'none', 'required' ('any'), the name of a tool, or"
        f" {{'type': 'function', 'function': {{'name': ...}}}}, got {choice!r:.200}."
    )
