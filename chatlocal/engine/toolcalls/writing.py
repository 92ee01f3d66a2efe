"""What writing calls has in common."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from keyword import iskeyword
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import ToolCall
from chatlocal.engine.toolcalls.json_text import loaded

_STRING_OR_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|Infinity')
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call; "" says that there are none. UnsupportedInput when they are no JSON object."""
    read = loaded(call.arguments or "{}")
    if not isinstance(read, dict):
        raise UnsupportedInput(f"The arguments of a call to {call.name} are no JSON object: {call.arguments!r}.")
    return read


def arguments_object(call: ToolCall) -> str:
    """The arguments of a call as one JSON object, in the small form's own spelling. UnsupportedInput as above."""
    return as_json(arguments(call))


def as_json(value: Any) -> str:
    """A value as JSON, in the small form's own spelling: all but halves of characters as themselves."""
    text = json.dumps(value, ensure_ascii=False)
    if "Infinity" in text:  # what Python makes of a number that is beyond its floats
        text = _STRING_OR_INFINITY.sub(lambda found: "1e999" if found[0] == "Infinity" else found[0], text)
    return _HALF_CHARACTER.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_python(value: Any) -> str:
    """A JSON value as a Python literal, its texts in the spelling of JSON, which is one of Python's."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{as_json(key)}: {as_python(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_python, value))}]"
    if isinstance(value, str) or (isinstance(value, float) and math.isinf(value)):
        return as_json(value)
    return repr(value)


def as_keywords(arguments: dict[str, Any]) -> str:
    """Arguments as those of a Python call; what is no Python name stands in `**{...}`."""
    return ", ".join(
        f"{name}={as_python(value)}" if name.isidentifier() and not iskeyword(name) else f"**{as_python({name: value})}"
        for name, value in arguments.items()
    )


def check_name(name: str, unwritable: Iterable[str], format: str) -> str:
    """A function's name. UnsupportedInput when it is empty, or has white space or any of those texts in it."""
    if not name or any(char.isspace() for char in name) or any(text in name for text in unwritable):
        raise UnsupportedInput(f"The {format} format cannot write a call to {name!r}: give the function a plain name.")
    return name
