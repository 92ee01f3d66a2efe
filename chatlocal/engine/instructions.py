"""What we say to a model that must answer in a form. The grammar sees to the form; this is for the values.

Models whose template knows tools have been trained on JSON Schema and get the schema. Others do better with the fields
in plain words and a few worked examples about other things: benchmarks/values.py measures what each part is worth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from chatlocal.engine.field_list import describe, resolve
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

_DEEPEST_SHELL = 4


def ask_for_json(
    messages: Iterable[ChatMessage | Mapping[str, Any]],
    schema: Mapping[str, Any],
    *,
    trained: bool = False,
    examples: bool = True,
) -> tuple[ChatMessage, ...]:
    """The conversation with the request to answer its last user turn as JSON that fits `schema` (a JSON Schema).

    `trained`: the model knows JSON Schema, so it gets the schema itself and no worked examples. `examples=False`
    leaves them out for other models too; they take about 150 tokens.
    """
    turns = read_messages(messages)
    if trained:
        return with_wish(turns, f"Answer as JSON that fits this JSON schema: {_json(schema)}")
    opening = 1 if turns[0].role == "system" else 0
    asked = with_wish(turns[opening:], f"Answer as {describe(schema)}")
    worked = _worked_examples(_shell(schema)) if examples else ()
    return (*turns[:opening], *worked, *asked)


def _worked_examples(shell: tuple[str | None, ...]) -> Iterable[ChatMessage]:
    for text, fields, answer in _WORKED:
        form: dict[str, Any] = {"type": "object", "properties": fields}
        value: Any = answer
        for key in reversed(shell):
            form = {"type": "array", "items": form} if key is None else {"type": "object", "properties": {key: form}}
            value = [value] if key is None else {key: value}
        yield ChatMessage("user", f"{text}\n\nAnswer as {describe(form)}")
        yield ChatMessage("assistant", _json(value))


def _shell(schema: Mapping[str, Any]) -> tuple[str | None, ...]:
    """What is wrapped around the record that is asked for: the key of an object with one field, None for a list.

    The worked examples get the same wrapping. Without it small models take their values from the examples (measured).
    """
    shell: list[str | None] = []
    inner = resolve(schema, schema)
    while len(shell) < _DEEPEST_SHELL:
        properties = inner.get("properties") or {}
        if len(properties) == 1:
            [(key, value)] = properties.items()
            step: str | None = key
        elif inner.get("type") == "array" and inner.get("items"):
            step, value = None, inner["items"]
        else:
            break
        inner = resolve(value, schema)
        if not (inner.get("properties") or inner.get("type") == "array"):
            break
        shell.append(step)
    return tuple(shell)


def with_wish(turns: tuple[ChatMessage, ...], wish: str) -> tuple[ChatMessage, ...]:
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
