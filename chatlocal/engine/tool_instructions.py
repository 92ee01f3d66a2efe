"""What we say of tools to a model whose prompt format has no place for them.

The tools stand in plain words behind the last user turn, where a small model still minds them, with worked examples
about other things before the conversation: benchmarks/tool_calls.py measures what each part is worth. Calls and results
of the past become text, in the form that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chatlocal.engine import toolcalls
from chatlocal.engine.families.shown_tools import shown_tools
from chatlocal.engine.field_list import describe
from chatlocal.engine.instructions import with_wish
from chatlocal.engine.messages import ChatMessage, Tool, ToolCall, read_messages
from chatlocal.engine.toolcalls.json_text import loaded

FORMAT = "prompted"
"""The name of the format that the wording asks for."""
# Said where no worked example shows it.
_FORM = 'Answer as <tool_call>\n{"name": name of the tool, "arguments": {...}}\n</tool_call>'


def _tool(name: str, description: str, **parameters: Any) -> Tool:
    return Tool(name, description, {"type": "object", "properties": parameters})


# (request, tool, arguments): short, each with somebody or something beside what is to be picked out.
_WORKED: tuple[tuple[str, Tool, dict[str, Any]], ...] = (
    (
        "Please send 3 bottles of milk to Mrs. Fox, she lives above the bakery.",
        _tool(
            "deliver",
            "Deliver something",
            goods={"type": "string", "description": "What to deliver"},
            count={"type": "integer", "description": "How many"},
        ),
        {"goods": "milk", "count": 3},
    ),
    (
        "Keep the book Dune for Carla, she wants it tomorrow.",
        _tool(
            "reserve_book",
            "Reserve a book",
            title={"type": "string", "description": "Title of the book"},
            reader={"type": "string", "description": "Who wants it"},
        ),
        {"title": "Dune", "reader": "Carla"},
    ),
    (
        "Bill and Ana are ill today, their boss should know.",
        _tool(
            "report_sick",
            "Report people as sick",
            names={"type": "array", "items": {"type": "string"}, "description": "Who is sick"},
            today={"type": "boolean", "description": "Whether they are sick today"},
        ),
        {"names": ["Bill", "Ana"], "today": True},
    ),
)


def with_tools(
    messages: Iterable[ChatMessage | Mapping[str, Any]],
    tools: Sequence[Tool | Mapping[str, Any]],
    *,
    examples: bool = True,
) -> tuple[ChatMessage, ...]:
    """The conversation with the request to call one of the tools, in turns of system, user and assistant alone.

    Without tools only calls and results of the past are written out. `examples=False` leaves the worked examples out;
    they take about 250 tokens.
    """
    shown = shown_tools(tools)
    # Where no call is asked for, past ones are told of in words: small models repeat what stands there as a call.
    turns = _as_text(read_messages(messages), _written if shown else _told)
    if not shown:
        return turns
    opening = 1 if turns[0].role == "system" else 0
    worked = tuple(_worked_examples()) if examples else ()
    wish = _wish(shown) if examples else f"{_wish(shown)}\n{_FORM}"
    return (*turns[:opening], *worked, *with_wish(turns[opening:], wish))


def _worked_examples() -> Iterable[ChatMessage]:
    for text, tool, arguments in _WORKED:
        yield ChatMessage("user", f"{text}\n\n{_wish([tool])}")
        yield ChatMessage("assistant", _written([ToolCall("", tool.name, json.dumps(arguments))]))


def _wish(tools: Sequence[Tool]) -> str:
    return "\n".join(f"Tool {_described(tool)}" for tool in tools)


def _described(tool: Tool) -> str:
    about = tool.description.strip().rstrip(".。")
    named = f"{tool.name} ({about})" if about else tool.name
    if not tool.parameters.get("properties"):
        return f"{named} without arguments"
    return f"{named} with: {describe(tool.parameters).removeprefix('a JSON object with: ')}"


def _as_text(turns: Sequence[ChatMessage], write: Callable[[Sequence[ToolCall]], str]) -> tuple[ChatMessage, ...]:
    """The turns with calls and results written into texts; results in a row become one user turn."""
    written: list[ChatMessage] = []
    called: dict[str, str] = {}
    results: list[str] = []
    for turn in turns:
        if turn.role == "tool":
            name = called.get(turn.tool_call_id or "") or turn.name
            results.append(f"Result of {name}: {turn.text}" if name else f"Result: {turn.text}")
            continue
        if results:
            written.append(ChatMessage("user", "\n".join(results)))
            results = []
        called |= {call.id: call.name for call in turn.tool_calls}
        written.append(_without_calls(turn, write(turn.tool_calls)) if turn.tool_calls else turn)
    if results:
        written.append(ChatMessage("user", "\n".join(results)))
    return tuple(written)


def _without_calls(turn: ChatMessage, calls: str) -> ChatMessage:
    return replace(turn, content=f"{turn.text}\n{calls}" if turn.text else calls, tool_calls=())


def _written(calls: Sequence[ToolCall]) -> str:
    """Calls as they are asked for; in words where their arguments are broken."""
    if any(not isinstance(loaded(call.arguments or "{}"), dict) for call in calls):
        return _told(calls)
    return toolcalls.get(FORMAT).dump(calls)


def _told(calls: Sequence[ToolCall]) -> str:
    return "\n".join(f"Let me ask {call.name}{_given(call)}." for call in calls)


def _given(call: ToolCall) -> str:
    """The arguments of a call in words, as they are where they are no JSON object."""
    arguments = loaded(call.arguments or "{}")
    if not isinstance(arguments, dict):
        return f" ({call.arguments})"
    words = (
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )
    return f" ({', '.join(words)})" if arguments else ""
