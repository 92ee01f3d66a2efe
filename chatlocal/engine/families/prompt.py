"""What a family makes of a conversation: markup and text, kept apart until they are ids."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from chatlocal.engine.families.encoding import encoder


@dataclass(frozen=True, slots=True)
class Markup:
    """One control token, spelled out. It becomes its id, or plain text in a tokenizer that has no such token."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text: whatever it spells, it never becomes a control id."""

    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation.

    `stop_strings` end an answer. `opened` is what the prompt has already opened of it: "<think>\\n" or "". `control`
    are the control tokens of the family, used here or not, besides those that the tokenizer marks special.
    """

    parts: tuple[Markup | Text, ...]
    stop_strings: tuple[str, ...] = ()
    opened: str = ""
    control: frozenset[str] = frozenset()

    @property
    def segments(self) -> tuple[dict[str, str], ...]:
        """`{"special": token}` for each control token, `{"text": text}` for what stands between two of them."""
        segments: list[dict[str, str]] = []
        for kind, parts in groupby(self.parts, key=type):
            if kind is Markup:
                segments.extend({"special": part.text} for part in parts)
            elif text := "".join(part.text for part in parts):
                segments.append({"text": text})
        return tuple(segments)

    @property
    def text(self) -> str:
        """The prompt for a person to read, control tokens spelled out."""
        return "".join(part.text for part in self.parts)

    def ids(self, tokenizer: Any) -> tuple[int, ...]:
        """The ids to feed: control ids from markup only, a leading begin-of-text id once where the tokenizer adds one.

        Linear in the prompt. UnsupportedInput for a tokenizer that is not a fast one.
        """
        pieces = [(isinstance(part, Markup), part.text) for part in self.parts]
        return encoder(tokenizer, self.control).encode(pieces)

    def stop_ids(self, tokenizer: Any) -> frozenset[int]:
        """The ids that end an answer: those of the stop strings that are control tokens, and the tokenizer's end."""
        known = encoder(tokenizer, self.control).control_ids
        ids = {known[stop] for stop in self.stop_strings if stop in known}
        end = getattr(tokenizer, "eos_token_id", None)
        return frozenset(ids if end is None else ids | {end})

    def stop_texts(self, tokenizer: Any) -> tuple[str, ...]:
        """The stop strings to look for in the answer's text: those that the tokenizer has no control token for.

        A control token ends an answer by its id; the same characters in plain text are something the model talks about.
        """
        known = encoder(tokenizer, self.control).control_ids
        return tuple(stop for stop in self.stop_strings if stop not in known)
