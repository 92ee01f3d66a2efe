"""A growing text to read from: a reader waits where it needs more, so it is written as if the whole text were there.

Readers are generators that yield nothing and only to wait. What they find depends on the text alone, never on the
pieces in which it comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

_T = TypeVar("_T")
_SPACE = re.compile(r"\s*")

# A reader: waits by yielding, returns what it read.
Reading = Generator[None, None, _T]


class Source:
    """The text that has come so far and is not read yet."""

    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._place = 0
        self._kept: list[int] = []  # where raw texts that are asked for later begin

    def append(self, text: str) -> None:
        """More text has come."""
        keep = min([self._place, *self._kept])
        self._text = self._text[keep:] + text
        self._place -= keep
        self._kept = [place - keep for place in self._kept]

    def end(self) -> None:
        """No more text will come."""
        self.ended = True

    @property
    def waiting(self) -> str:
        """What has come and is not read."""
        return self._text[self._place :]

    def ahead(self, count: int) -> str:
        """What has come of that many characters, still unread."""
        return self._text[self._place : self._place + count]

    def take(self, count: int) -> str:
        """Read that many characters, which must be there."""
        taken = self._text[self._place : self._place + count]
        self._place += count
        return taken

    def take_run(self, pattern: re.Pattern[str]) -> str:
        """Read what has come and matches a pattern, such as a run of characters of one kind; more may follow."""
        found = pattern.match(self._text, self._place)
        return self.take(found.end() - self._place) if found else ""

    def keep(self) -> None:
        """Keep what is read from here on, for `kept`."""
        self._kept.append(self._place)

    def kept(self) -> str:
        """What was read since the last `keep`, which this ends."""
        return self._text[self._kept.pop() : self._place]

    def rewind(self) -> None:
        """Make what was read since the last `keep` unread, which this ends."""
        self._place = self._kept.pop()

    def more(self) -> Reading[bool]:
        """Wait for more text; False when there will be none."""
        have = len(self._text) - self._place
        while len(self._text) - self._place == have and not self.ended:
            yield
        return len(self._text) - self._place > have

    def peek(self) -> Reading[str]:
        """The next character, "" at the end."""
        while self._place == len(self._text) and not self.ended:
            yield
        return self._text[self._place : self._place + 1]

    def begins_with(self, literal: str) -> Reading[bool]:
        """Whether the text goes on with a literal; waits only as long as both are possible."""
        while True:
            have = self._text[self._place : self._place + len(literal)]
            if len(have) == len(literal) or not literal.startswith(have) or self.ended:
                return have == literal
            yield

    def next_of(self, literals: Sequence[str]) -> Reading[str | None]:
        """The longest of the literals that the text goes on with, None when it is none."""
        for literal in sorted(literals, key=len, reverse=True):
            if (yield from self.begins_with(literal)):
                return literal
        return None

    def skip(self, literal: str) -> Reading[bool]:
        """Read a literal if the text goes on with it."""
        found = yield from self.begins_with(literal)
        if found:
            self.take(len(literal))
        return found

    def skip_space(self) -> Reading[str]:
        """Read white space, and give it."""
        read = ""
        while True:
            read += self.take_run(_SPACE)
            if self._place < len(self._text) or not (yield from self.more()):
                return read

    def text_until(self, marks: Sequence[str], give: Callable[[str], None]) -> Reading[str | None]:
        """Give text as it comes up to the first mark, which stays unread and is returned; None at the end.

        Held back is only what may still become a mark; of two that begin at one place the longer one is found.
        """
        pattern = _any_of(tuple(marks))
        while True:
            certain = len(self._text) if self.ended else self._certain(marks)
            found = pattern.search(self._text, self._place)
            if found and found.start() < certain:
                give(self.take(found.start() - self._place))
                return found[0]
            if certain > self._place:
                give(self.take(certain - self._place))
            if not (yield from self.more()) and self._place == len(self._text):
                return None

    def _certain(self, marks: Sequence[str]) -> int:
        """The place up to which no mark begins that more text would complete or make longer."""
        longest = max(map(len, marks), default=0) - 1
        for start in range(max(self._place, len(self._text) - longest), len(self._text)):
            if any(len(mark) > len(self._text) - start and mark.startswith(self._text[start:]) for mark in marks):
                return start
        return len(self._text)


@lru_cache(maxsize=256)
def _any_of(marks: tuple[str, ...]) -> re.Pattern[str]:
    """The longest mark at a place, nothing where there are none."""
    return re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)) or "(?!)")
