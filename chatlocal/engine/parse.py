"""What of a growing text is the answer, a piece at a time: `feed` returns what is final, `flush` the rest.

Knows stop texts. What the stop matcher releases is the answer as the model wrote it: whatever reads markup (reasoning,
tool calls) reads that text, so no stop can reach into it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from chatlocal.engine.errors import UnsupportedInput


class StopMatcher:
    """Cuts a text before the stop that is completed first; of several completed by the same character, the longest.

    That depends on the whole text alone, not on how it comes in pieces, and needs no look past the stop. What is held
    back is the longest suffix that is a proper prefix of some stop, no more. The cost is linear in stops and text (an
    Aho-Corasick automaton: its state is that suffix). UnsupportedInput for a stop without characters.

    `stopped` is the stop that ended the text, or None; after it nothing more comes out.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or any(not stop for stop in stops):
            raise UnsupportedInput(f"Stops are texts of at least one character, got {stops!r}.")
        self.stopped: str | None = None
        self._state = 0
        self._build(stops)
        self._start = re.compile("[" + "".join(re.escape(char) for char in self._next[0]) + "]") if stops else None

    def feed(self, text: str) -> str:
        """The text that can no longer become part of a stop, "" after one."""
        if self.stopped is not None:
            return ""
        if self._start is None:
            return text
        before = self._state
        place = 0
        while place < len(text):
            if self._state == 0:
                found = self._start.search(text, place)
                if found is None:
                    break
                place = found.start()
            self._state = self._step(text[place])
            place += 1
            stop = self._completed[self._state]
            if stop is not None:
                self.stopped, self._state = stop, 0
                return self._cut(before, text, self._depth[before] + place - len(stop))
        return self._cut(before, text, self._depth[before] + len(text) - self._depth[self._state])

    def flush(self) -> str:
        """What was held back when the text ended without a stop."""
        held, self._state = self._held(self._state), 0
        return held

    def _held(self, state: int) -> str:
        return self._through[state][: self._depth[state]]

    def _cut(self, before: int, text: str, length: int) -> str:
        """The first `length` characters of what was held in state `before` and the text; copies only what it gives."""
        depth = self._depth[before]
        if length <= depth:
            return self._through[before][:length]
        return self._held(before) + text[: length - depth]

    def _step(self, char: str) -> int:
        state = self._state
        while state and char not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(char, 0)

    def _build(self, stops: Sequence[str]) -> None:
        """States are the prefixes of the stops, 0 the empty one; the fallback is the longest proper suffix of one."""
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._through = [""]  # a stop that begins with the state's prefix
        self._completed: list[str | None] = [None]
        for stop in stops:
            state = 0
            for char in stop:
                if char not in self._next[state]:
                    self._next[state][char] = len(self._next)
                    self._next.append({})
                    self._depth.append(self._depth[state] + 1)
                    self._through.append(stop)
                    self._completed.append(None)
                state = self._next[state][char]
            self._completed[state] = stop
        self._fallback = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            parent = queue.popleft()
            for char, child in self._next[parent].items():
                queue.append(child)
                self._state = self._fallback[parent]
                self._fallback[child] = self._step(char)
                # A whole stop is longer than any stop that is its suffix, so its own entry stays.
                if self._completed[child] is None:
                    self._completed[child] = self._completed[self._fallback[child]]
        self._state = 0
