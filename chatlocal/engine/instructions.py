"""What we say to a model that must answer in a form: our own wording, for models that were not trained for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from chatlocal.engine.messages import ChatMessage, read_messages


def ask_for_json(
    messages: Iterable[ChatMessage | Mapping[str, Any]], schema: Mapping[str, Any]
) -> tuple[ChatMessage, ...]:
    """The conversation with the request to answer as one JSON object of `schema` (a JSON Schema)."""
    asked = read_messages(messages)
    wish = "Answer with one JSON object of this JSON schema:\n" + json.dumps(schema, ensure_ascii=False)
    if asked[0].role == "system":
        return (ChatMessage("system", f"{asked[0].text}\n\n{wish}"), *asked[1:])
    return (ChatMessage("system", wish), *asked)
