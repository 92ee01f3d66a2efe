"""What we say to a model that must answer in a form. The grammar sees to the form; this is for the values.

Models whose template knows tools have been trained on JSON Schema and get the schema. Others do better with the fields
in plain words and two worked examples about other things: benchmarks/values.py and benchmarks/extraction.py measure
what each part is worth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from chatlocal.engine.field_list import describe
from chatlocal.engine.messages import ChatMessage, read_messages
from chatlocal.engine.worked_examples import is_flat, worked_examples


def ask_for_json(
    messages: Iterable[ChatMessage | Mapping[str, Any]],
    schema: Mapping[str, Any],
    *,
    trained: bool = False,
    examples: bool = True,
) -> tuple[ChatMessage, ...]:
    """The conversation with the request to answer its last user turn as JSON that fits `schema` (a JSON Schema).

    `trained`: the model knows JSON Schema, so it gets the schema itself and no worked examples. `examples=False`
    leaves them out for other models too; they take 150 to 300 tokens, and up to 550 where they are Chinese.
    """
    turns = read_messages(messages)
    if trained:
        return with_wish(turns, f"Answer as JSON that fits this JSON schema: {_json(schema)}")
    opening = 1 if turns[0].role == "system" else 0
    # Lists and records within records do better with their fields in front of the text. For flat ones
    # benchmarks/values.py and benchmarks/extraction.py do not agree.
    before = not is_flat(schema)
    worked: list[ChatMessage] = []
    for example in worked_examples(schema) if examples else ():
        worked += with_wish((ChatMessage("user", example.text),), _wish(example.schema), before=before)
        worked.append(ChatMessage("assistant", _json(example.answer)))
    return (*turns[:opening], *worked, *with_wish(turns[opening:], _wish(schema), before=before))


def _wish(schema: Mapping[str, Any]) -> str:
    return f"Answer as {describe(schema)}"


def with_wish(turns: tuple[ChatMessage, ...], wish: str, *, before: bool = False) -> tuple[ChatMessage, ...]:
    """The wish at the end of the last user turn, or `before` all that it says; a turn of its own when nobody has spoken
    as user."""
    for place in range(len(turns) - 1, -1, -1):
        turn = turns[place]
        if turn.role == "user":
            said = turn.content if isinstance(turn.content, tuple) else (turn.content or "",)
            parts = (f"{wish}\n\n", *said) if before else (*said, f"\n\n{wish}")
            wished = parts if isinstance(turn.content, tuple) else "".join(map(str, parts))
            return (*turns[:place], replace(turn, content=wished), *turns[place + 1 :])
    return (*turns, ChatMessage("user", wish))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
