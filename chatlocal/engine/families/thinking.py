"""Reasoning of past turns: where a message holds it, and what is left of the text without it."""

from __future__ import annotations

from chatlocal.engine.messages import ChatMessage


def split_thinking(turn: ChatMessage) -> tuple[str, str]:
    """The reasoning and the answer of an assistant's turn, whether it is a field of its own or in <think> tags.

    Qwen3's and GLM-4.5's published templates cut it this way: at the last </think>, line breaks at the borders off.
    """
    if turn.reasoning is not None:
        return turn.reasoning, turn.text
    if "</think>" not in turn.text:
        return "", turn.text
    thought = turn.text.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
    return thought, turn.text.split("</think>")[-1].lstrip("\n")


def last_question(turns: tuple[ChatMessage, ...]) -> int:
    """The index of the last user turn, the last index of all when there is none."""
    return next((index for index in reversed(range(len(turns))) if turns[index].role == "user"), len(turns) - 1)
