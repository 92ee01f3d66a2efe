"""Tool results and the calls that they answer, as mistral-common's validator wants them, and ids for both.

It counts results and calls; what is said here besides is that a result's id is that of a call, as it checks for newer
versions of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chatlocal.engine.errors import TemplateError, UnsupportedInput
from chatlocal.engine.families.mistral_call_ids import call_ids
from chatlocal.engine.messages import ChatMessage, ToolCall


def match_results(turns: Sequence[ChatMessage], format: str, *, by_id: bool) -> tuple[ChatMessage, ...]:
    """The turns, each result with the name of the function that was called.

    TemplateError for a result without a call that waits for it, and for calls without results when the conversation
    goes on. `by_id`: calls and results need ids, UnsupportedInput where there is none; otherwise a result without an id
    answers the first call that waits.
    """
    matched = []
    waiting: list[ToolCall] = []
    for index, turn in enumerate(turns):
        if turn.role == "tool":
            call = _answered(waiting, turn, by_id)
            if call is None:
                raise TemplateError(
                    f"The {format} format wants a tool result right behind its call, and message {index} with"
                    f" tool_call_id {turn.tool_call_id!r} answers no call that waits for one: put it behind the"
                    " assistant message with the call, once, with the call's id."
                )
            waiting.remove(call)
            turn = replace(turn, name=turn.name or call.name)
        elif turn.role != "system":
            _refuse_waiting(len(waiting), index, format)
            waiting = list(turn.tool_calls)
            if by_id:
                _check_ids(index, turn, format)
        matched.append(turn)
    return tuple(matched)


def refuse_unanswered(turns: Sequence[ChatMessage], format: str) -> None:
    """TemplateError when calls of the last answer have no results yet."""
    results = 0
    for turn in reversed(turns):
        results += turn.role == "tool"
        if turn.role == "assistant":
            _refuse_waiting(len(turn.tool_calls) - results, len(turns), format)
            return


def with_valid_ids(turns: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The turns with ids of nine letters and digits, the same for a call and its result."""
    shown = call_ids(call.id for turn in turns for call in turn.tool_calls)

    def written(turn: ChatMessage) -> ChatMessage:
        if turn.role == "tool":
            return replace(turn, tool_call_id=shown[turn.tool_call_id or ""])
        calls = tuple(replace(call, id=shown[call.id]) for call in turn.tool_calls)
        return replace(turn, tool_calls=calls) if calls else turn

    return tuple(map(written, turns))


def _answered(waiting: Sequence[ToolCall], result: ChatMessage, by_id: bool) -> ToolCall | None:
    if by_id:
        return next((call for call in waiting if call.id == result.tool_call_id), None)
    wanted = result.tool_call_id
    return next((call for call in waiting if not wanted or not call.id or call.id == wanted), None)


def _check_ids(index: int, turn: ChatMessage, format: str) -> None:
    ids = [call.id for call in turn.tool_calls]
    if len(set(ids)) < len(ids) or not all(ids):
        raise UnsupportedInput(
            f"The {format} format tells calls and results by their ids, and the tool calls of message {index} have the"
            f" ids {ids}: give each call an id of its own, and its result the same as tool_call_id."
        )


def _refuse_waiting(count: int, index: int, format: str) -> None:
    if count:
        raise TemplateError(
            f"The {format} format wants a result for each tool call before the conversation goes on, and {count} of"
            f" the calls before message {index} have none: put a tool message for each behind the call."
        )
