"""What mistral-common makes of a conversation's texts before it writes them (its normalize.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from chatlocal.engine.messages import ChatMessage

_GAP = "\n\n"
_JOINED = ("user", "assistant")


def misplaced_systems(turns: Sequence[ChatMessage]) -> frozenset[int]:
    """The system turns behind an answer or a tool result: mistral-common takes none there."""
    misplaced = set()
    before = ""
    for index, turn in enumerate(turns):
        if turn.role != "system":
            before = turn.role
        elif before in ("assistant", "tool"):
            misplaced.add(index)
    return frozenset(misplaced)


def system_text(turns: Iterable[ChatMessage]) -> str:
    """All system texts as one."""
    return _joined(turn.text for turn in turns if turn.role == "system")


def repeated(turns: Sequence[ChatMessage]) -> int | None:
    """The index of the first turn that `join_turns` joins to the one before it."""
    pairs = enumerate(pairwise(turn.role for turn in turns), start=1)
    return next((index for index, (before, role) in pairs if before == role and role in _JOINED), None)


def join_turns(turns: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """User and assistant turns of one role in a row become one: texts a blank line apart, calls one after the other."""
    joined: list[ChatMessage] = []
    for role, group in groupby(turns, key=lambda turn: turn.role):
        run = list(group)
        if role in _JOINED and len(run) > 1:
            calls = tuple(call for turn in run for call in turn.tool_calls)
            run = [replace(run[0], content=_joined(turn.text for turn in run), tool_calls=calls)]
        joined += run
    return tuple(joined)


def _joined(texts: Iterable[str]) -> str:
    return _GAP.join(filter(None, texts))
