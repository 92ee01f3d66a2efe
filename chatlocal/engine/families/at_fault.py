"""Which message a template stumbled on, when it cannot render a conversation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def message_at_fault(count: int, fails: Callable[[int, int], bool], said: bool) -> int | None:
    """The index of the message, of `count`, None when the conversation as a whole is at fault.

    `fails(start, end)` tells whether the messages from start to end cannot be rendered for the same reason; `said`
    whether the template itself refused them. The shortest beginning that fails ends with the message at fault. Renders
    about as often as the logarithm of `count`.
    """
    if not fails(0, count) or fails(0, 0):
        return None
    if not fails(0, count - 1):
        return count - 1  # first, for what must not come last may come earlier, as often as it likes
    shortest = bisect_left(range(1, count), True, key=lambda length: fails(0, length)) + 1
    if shortest == 1 and said and fails(1, count):
        return None  # something is missing in all of them
    return shortest - 1
