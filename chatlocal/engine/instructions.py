"""What we say to a model that must answer in a form. The grammar sees to the form; this is for the values.

Models whose template knows tools have been trained on JSON Schema and get the schema. Others do better with the fields
in plain words and a few worked examples about other things: benchmarks/values.py measures what each part is worth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from chatlocal.engine.field_list import describe
from chatlocal.engine.messages import ChatMessage, read_messages

# (text, fields, answer): short, general, and each with somebody or something beside the thing that is asked for.
_WORKED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    (
        "My uncle Bill worked for years on the Aurora, a ship built in 1962.",
        {"name": {"description": "The ship's name"}, "year": {"description": "Year it was built"}},
        {"name": "Aurora", "year": 1962},
    ),
    (
        "Since April Carla Nunez works full time in sales. Her boss is Mr. Lee.",
        {
            "name": {"description": "The employee's name"},
            "department": {"description": "Where the employee works"},
            "full_time": {"description": "Whether the work is full time"},
        },
        {"name": "Carla Nunez", "department": "sales", "full_time": True},
    ),
)


def ask_for_json(
    messages: Iterable[ChatMessage | Mapping[str, Any]], schema: Mapping[str, Any], *, trained: bool = False
) -> tuple[ChatMessage, ...]:
    """The conversation with the request to answer its last user turn as JSON that fits `schema` (a JSON Schema).

    `trained`: the model knows JSON Schema, so it gets the schema itself and no worked examples.
    """
    turns = read_messages(messages)
    if trained:
        return _with_wish(turns, f"Answer as JSON that fits this JSON schema: {_json(schema)}")
    opening = 1 if turns[0].role == "system" else 0
    asked = _with_wish(turns[opening:], f"Answer as {describe(schema)}")
    return (*turns[:opening], *_worked_examples(), *asked)


def _worked_examples() -> Iterable[ChatMessage]:
    for text, fields, answer in _WORKED:
        wish = describe({"type": "object", "properties": fields})
        yield ChatMessage("user", f"{text}\n\nAnswer as {wish}")
        yield ChatMessage("assistant", _json(answer))


def _with_wish(turns: tuple[ChatMessage, ...], wish: str) -> tuple[ChatMessage, ...]:
    """The wish at the end of the last user turn; as a turn of its own when nobody has spoken as user."""
    for place in range(len(turns) - 1, -1, -1):
        turn = turns[place]
        if turn.role == "user":
            content = turn.content
            wished = (*content, f"\n\n{wish}") if isinstance(content, tuple) else f"{content or ''}\n\n{wish}"
            return (*turns[:place], replace(turn, content=wished), *turns[place + 1 :])
    return (*turns, ChatMessage("user", wish))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
