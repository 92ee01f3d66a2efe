"""What we say of tools to a model whose prompt format has no place for them.

The tools stand in plain words behind the last user turn, where a small model still minds them, with worked examples
about other things before the conversation: benchmarks/tool_calls.py measures what each part is worth. Calls and results
of the past become text, in the form that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chatlocal.engine import toolcalls
from chatlocal.engine.families.shown_tools import shown_tools
from chatlocal.engine.field_list import describe
from chatlocal.engine.messages import ChatMessage, Tool, ToolCall, read_messages

_FORMAT = "prompted"
_FORM = '<tool_call>\n{"name": the name of the tool, "arguments": {its arguments}}\n</tool_call>'


def _tool(name: str, description: str, **parameters: Any) -> Tool:
    return Tool(name, description, {"type": "object", "properties": parameters})


# (request, tools, call): each with values to pick out of what stands around them, and of more kinds than text.
_WORKED: tuple[tuple[str, tuple[Tool, ...], str, dict[str, Any]], ...] = (
    (
        "The roses look dry, please give them 3 litres. Bill forgot it again.",
        (
            _tool(
                "water_plants",
                "Water plants in the garden.",
                plant={"type": "string", "description": "Which plant"},
                litres={"type": "integer", "description": "How much water"},
            ),
        ),
        "water_plants",
        {"plant": "roses", "litres": 3},
    ),
    (
        "Please keep the book Dune for Carla, there is no hurry. Ms. Lee will fetch it.",
        (
            _tool("list_books", "List the books of an author.", author={"type": "string"}),
            _tool(
                "keep_book",
                "Keep a book for a reader.",
                title={"type": "string", "description": "Title of the book"},
                reader={"type": "string", "description": "Who wants to read it"},
                urgent={"type": "boolean", "description": "Whether it is urgent"},
            ),
        ),
        "keep_book",
        {"title": "Dune", "reader": "Carla", "urgent": False},
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
    they take about 300 tokens. UnsupportedInput for calls whose arguments are no JSON object.
    """
    turns = _as_text(read_messages(messages))
    shown = shown_tools(tools)
    if not shown:
        return turns
    opening = 1 if turns[0].role == "system" else 0
    worked = tuple(_worked_examples()) if examples else ()
    return (*turns[:opening], *worked, *_with_wish(turns[opening:], _wish(shown)))


def _worked_examples() -> Iterable[ChatMessage]:
    for text, tools, name, arguments in _WORKED:
        yield ChatMessage("user", f"{text}\n\n{_wish(tools)}")
        yield ChatMessage("assistant", _written([ToolCall("", name, json.dumps(arguments))]))


def _wish(tools: Sequence[Tool]) -> str:
    lines = "\n".join(f"- {_described(tool)}" for tool in tools)
    return f"Call one of these tools:\n{lines}\nAnswer as\n{_FORM}"


def _described(tool: Tool) -> str:
    about = f"{tool.name}: {tool.description.strip().rstrip('.。')}." if tool.description.strip() else f"{tool.name}."
    if not tool.parameters.get("properties"):
        return f"{about} It takes no arguments."
    return f"{about} Arguments: {describe(tool.parameters).removeprefix('a JSON object with: ')}"


def _with_wish(turns: tuple[ChatMessage, ...], wish: str) -> tuple[ChatMessage, ...]:
    """The wish at the end of the last user turn; as a turn of its own when nobody has spoken as user."""
    for place in range(len(turns) - 1, -1, -1):
        turn = turns[place]
        if turn.role == "user":
            content = turn.content
            wished = (*content, f"\n\n{wish}") if isinstance(content, tuple) else f"{content or ''}\n\n{wish}"
            return (*turns[:place], replace(turn, content=wished), *turns[place + 1 :])
    return (*turns, ChatMessage("user", wish))


def _as_text(turns: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
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
        written.append(_without_calls(turn) if turn.tool_calls else turn)
    if results:
        written.append(ChatMessage("user", "\n".join(results)))
    return tuple(written)


def _without_calls(turn: ChatMessage) -> ChatMessage:
    text = turn.text
    return replace(
        turn, content=f"{text}\n{_written(turn.tool_calls)}" if text else _written(turn.tool_calls), tool_calls=()
    )


def _written(calls: Iterable[ToolCall]) -> str:
    return toolcalls.get(_FORMAT).dump(calls)
