"""Where a reader puts what it finds: events, with white space at the borders of the answer left out."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Sequence
from typing import Any

from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Event, Reasoning, Text
from chatlocal.engine.messages import Tool

_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 9  # what Mistral's formats demand; others take anything


class Output:
    """Collects the events of one answer; `taken` gives those since the last time.

    `tools` are the declared ones, None when every name counts as declared. `salt` makes the ids of calls those of this
    answer: with the same salt the same calls get the same ids.
    """

    def __init__(self, tools: Sequence[Tool] | None, salt: str) -> None:
        self._tools = None if tools is None else {tool.name: tool for tool in tools}
        self._salt = salt
        self._events: list[Event] = []
        self._answer = _Borders()
        self._thought = _Borders()
        self._calls = 0
        self.stopped = False

    def taken(self) -> list[Event]:
        """The events since the last time."""
        events, self._events = self._events, []
        return events

    def stop(self) -> None:
        """The answer is over here, whatever the model would write further."""
        self.stopped = True

    def declared(self, name: str) -> bool:
        """Whether a tool of this name was declared."""
        return self._tools is None or name in self._tools

    def parameters(self, name: str) -> dict[str, Any]:
        """The JSON Schemas of a tool's parameters by name, empty where they are not known."""
        tool = (self._tools or {}).get(name)
        properties = tool.parameters.get("properties") if tool is not None else None
        return properties if isinstance(properties, dict) else {}

    def text(self, text: str) -> None:
        """A piece of the answer."""
        if inner := self._answer.inner(text):
            self._events.append(Text(inner))

    def reasoning(self, text: str) -> None:
        """A piece of the model's thinking."""
        if inner := self._thought.inner(text):
            self._events.append(Reasoning(inner))

    def start(self, name: str, id: str | None = None) -> int:
        """A call begins; its index, for `arguments` and `invalid`."""
        index = self._calls
        self._calls += 1
        self._events.append(CallStart(index, id or self._id(index, name), name))
        return index

    def arguments(self, index: int, text: str) -> None:
        """A piece of a call's arguments."""
        if text:
            self._events.append(CallDelta(index, text))

    def call(self, name: str, arguments: str, id: str | None = None) -> None:
        """A whole call."""
        self.arguments(self.start(name, id), arguments)

    def invalid(self, raw: str, error: str, index: int | None = None) -> None:
        """What looked like a call and could not be read; `index` is that of the call if it had begun."""
        if index is None:
            index = self._calls
            self._calls += 1
        self._events.append(CallInvalid(index, raw, error))

    def _id(self, index: int, name: str) -> str:
        number = int.from_bytes(hashlib.sha256(f"{self._salt}/{index}/{name}".encode()).digest()[:8], "big")
        digits = []
        for _ in range(_ID_LENGTH):
            number, digit = divmod(number, len(_ALPHABET))
            digits.append(_ALPHABET[digit])
        return "".join(digits)


class _Borders:
    """Leaves white space at both ends of a text out: it is held until more text shows that it is not the end."""

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def inner(self, text: str) -> str:
        """What of the text so far is certain with this piece."""
        text = self._held + text if self._begun else text.lstrip()
        inner = text.rstrip()
        self._begun = self._begun or bool(inner)
        self._held = text[len(inner) :]
        return inner
