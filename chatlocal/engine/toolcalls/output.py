"""Where a reader puts what it finds: events, with white space at the borders of the answer left out."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Event, Reasoning, Text
from chatlocal.engine.messages import Tool
from chatlocal.engine.toolcalls.borders import Borders

_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 9  # what Mistral's formats demand; others take anything
# What looks like the name of a function where no tools are declared: OpenAI's rule, with dots and without digits first.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class Output:
    """Collects the events of one answer; `taken` gives those since the last time.

    `tools` are the declared ones, None when every name counts as declared. `salt` makes the ids of calls those of this
    answer: with the same salt the same calls get the same ids.
    """

    def __init__(self, tools: Sequence[Tool] | None, salt: str) -> None:
        self._tools = None if tools is None else {tool.name: tool for tool in tools}
        self._salt = salt
        self._events: list[Event] = []
        self._answer = Borders()
        self._thought = Borders()
        self._calls = 0
        self._ids: set[str] = set()
        self.stopped = False

    def taken(self) -> list[Event]:
        """The events since the last time, with neighbours that go on with each other as one."""
        events, self._events = self._events, []
        return [_joined(list(run)) for _, run in groupby(events, _run)]

    def stop(self) -> None:
        """The answer is over here, whatever the model would write further."""
        self.stopped = True

    def declared(self, name: str) -> bool:
        """Whether a tool of this name was declared."""
        return self._tools is None or name in self._tools

    def known(self, name: str) -> bool:
        """Whether tools were declared, and one of this name among them."""
        return self._tools is not None and name in self._tools

    @property
    def expects_calls(self) -> bool:
        """Whether there may be calls at all: not where an empty list of tools was declared."""
        return self._tools is None or bool(self._tools)

    def is_name(self, text: str) -> bool:
        """Whether a text that nothing marks as a name is one: a declared tool's, or one that looks like it."""
        return self.known(text) or _NAME.fullmatch(text) is not None

    def may_become_name(self, text: str) -> bool:
        """Whether more text could make a text a name."""
        return _NAME.fullmatch(text) is not None or any(name.startswith(text) for name in self._tools or ())

    def parameters(self, name: str) -> dict[str, Any]:
        """The JSON Schema of a tool's parameters, empty where it is not known."""
        tool = (self._tools or {}).get(name)
        return {} if tool is None else tool.parameters

    def text(self, text: str) -> None:
        """A piece of the answer."""
        if inner := self._answer.inner(text):
            self._events.append(Text(inner))

    def reasoning(self, text: str) -> None:
        """A piece of the model's thinking."""
        if inner := self._thought.inner(text):
            self._events.append(Reasoning(inner))

    def start(self, name: str, id: str | None = None) -> int:
        """A call begins; its index, for `arguments` and `invalid`. An id that another call has is not taken."""
        index = self._calls
        self._calls += 1
        if not id or id in self._ids:
            id = self._id(index, name)
        self._ids.add(id)
        self._events.append(CallStart(index, id, name))
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


def _run(event: Event) -> tuple[type, int | None]:
    """What events have in common that go on with each other. Calls have one start and one end each."""
    return type(event), getattr(event, "index", None)


def _joined(events: list[Event]) -> Event:
    first = events[0]
    if len(events) == 1:
        return first
    if isinstance(first, CallDelta):
        return CallDelta(first.index, "".join(event.arguments for event in events if isinstance(event, CallDelta)))
    written = "".join(event.text for event in events if isinstance(event, Text | Reasoning))
    return Text(written) if isinstance(first, Text) else Reasoning(written)
