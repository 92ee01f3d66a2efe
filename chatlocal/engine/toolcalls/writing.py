"""What writing calls has in common."""

from __future__ import annotations

import json

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ToolCall


def arguments_object(call: ToolCall) -> str:
    """The arguments of a call as one JSON object, in the small form's own spelling; "" is an empty one.

    UnsupportedInput when they are no JSON object.
    """
    try:
        read = json.loads(call.arguments or "{}")
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise UnsupportedInput(f"The arguments of a call to {call.name} are no JSON object: {call.arguments!r}.")
    return json.dumps(read, ensure_ascii=False)
