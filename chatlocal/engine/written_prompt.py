"""A prompt that its writer has spelled out whole, control tokens included: no chat template comes between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from chatlocal.engine.families.control import control_tokens
from chatlocal.engine.families.prompt import Markup, Prompt, Text


def written_prompt(text: str, tokenizer: Any) -> Prompt:
    """The text as a Prompt for `Engine.stream`: every control token of the tokenizer that it spells is one.

    So it is for prompts that a program writes and not for what a user types. Besides the model's end tokens nothing
    ends the answer.
    """
    return Prompt(tuple(_parts(text, control_tokens(tokenizer))), begins=True)


def _parts(text: str, control: dict[str, int]) -> Iterator[Markup | Text]:
    if not control:
        yield Text(text)
        return
    longest_first = sorted(control, key=len, reverse=True)
    for piece in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text):
        if piece:
            yield Markup(piece) if piece in control else Text(piece)
