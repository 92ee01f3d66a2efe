"""Fitting a conversation to a family that has no system role or demands that roles alternate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chatlocal.engine.messages import ChatMessage

_GAP = "\n\n"


def merge_system(turns: Sequence[ChatMessage], refused: Callable[[int], bool]) -> tuple[ChatMessage, ...]:
    """Each system text whose index is refused goes in front of the next user turn, at the end behind the last one."""
    merged: list[ChatMessage] = []
    waiting: list[str] = []
    for index, turn in enumerate(turns):
        if turn.role == "system" and refused(index):
            waiting.extend([turn.text] if turn.text else [])
        elif turn.role == "user" and waiting:
            merged.append(replace(turn, content=_GAP.join([*waiting, turn.text])))
            waiting = []
        else:
            merged.append(turn)
    if waiting:
        text = _GAP.join(waiting)
        last = merged[-1] if merged else None
        if last is not None and last.role == "user":
            merged[-1] = replace(last, content=last.text + _GAP + text)
        else:
            merged.append(ChatMessage("user", text))
    return tuple(merged)


def repeated_role(turns: Sequence[ChatMessage]) -> int | None:
    """The index of the first user or assistant turn that follows one of its own role, None when there is none."""
    return next((index for index in range(1, len(turns)) if _can_join(turns[index - 1], turns[index])), None)


def join_repeated(turns: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Turns of the same role in a row become one, their texts a blank line apart."""
    runs: list[list[ChatMessage]] = []
    for turn in turns:
        if runs and _can_join(runs[-1][-1], turn):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return tuple(run[0] if len(run) == 1 else _joined(run) for run in runs)


def _can_join(one: ChatMessage, other: ChatMessage) -> bool:
    return one.role == other.role and one.role in ("user", "assistant") and not (one.tool_calls or other.tool_calls)


def _joined(run: list[ChatMessage]) -> ChatMessage:
    reasoning = _GAP.join(turn.reasoning for turn in run if turn.reasoning)
    return replace(run[0], content=_GAP.join(turn.text for turn in run), reasoning=reasoning or None)
