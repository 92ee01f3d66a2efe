"""What a family makes of a conversation: markup and text, kept apart until they are ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.families.encoding import encoder


@dataclass(frozen=True, slots=True)
class Markup:
    """One control token, spelled out. It becomes its id, or plain text in a tokenizer that has no such token.

    `special` is False for the added tokens that tokenizers do not mark special (Qwen3's <think>): those are shown as
    part of the text around them.
    """

    text: str
    special: bool = True


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text: whatever it spells, it never becomes a control id.

    `own`: tokenized on its own, as the references of some sentencepiece families do, so that it begins like a text
    (with the space that sentencepiece puts there). It is a segment of its own, empty text too, unless `gap` joins it to
    the text before it: what the reference shows between the two.
    """

    text: str
    own: bool = False
    gap: str | None = None

    @property
    def apart(self) -> bool:
        """Whether it is a segment of its own."""
        return self.own and self.gap is None


Part = Markup | Text


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation.

    `stop_strings` end an answer; `next_turn` is what would begin another turn, for families whose answers do not always
    end with a stop string: an answer ends before it too. `opened` is what the prompt has already opened of the answer:
    "<think>\\n" or "". `control` are the control tokens of the family, used here or not, besides those that the
    tokenizer marks special. `begins`: the ids begin with the tokenizer's begin-of-text id, which the text does not
    show, where the tokenizer is one that puts it there.
    """

    parts: tuple[Part, ...]
    stop_strings: tuple[str, ...] = ()
    next_turn: tuple[str, ...] = ()
    opened: str = ""
    control: frozenset[str] = frozenset()
    begins: bool = False

    @property
    def segments(self) -> tuple[dict[str, Any], ...]:
        """`{"special": token}` for each special token, `{"text": text}` for what stands between two of them.

        Text that is a segment of its own has "tokenized_separately": True beside it.
        """
        return tuple(self._segments())

    @property
    def text(self) -> str:
        """The prompt for a person to read, control tokens spelled out."""
        return "".join(_shown(part) for part in self.parts)

    def ids(self, tokenizer: Any) -> tuple[int, ...]:
        """The ids to feed: control ids from markup only. Linear in the prompt.

        UnsupportedInput for a tokenizer that is neither a fast one nor one of chatlocal's own.
        """
        made = encoder(tokenizer, self.control)
        ids = made.encode(self._runs())
        return ids if not self.begins or ids[:1] == made.begin[:1] else made.begin + ids

    def stop_ids(self, tokenizer: Any) -> frozenset[int]:
        """The ids that end an answer: those of the stops that are control tokens, and the tokenizer's end."""
        known = encoder(tokenizer, self.control).control_ids
        ids = {known[stop] for stop in self._stops if stop in known}
        end = getattr(tokenizer, "eos_token_id", None)
        return frozenset(ids if end is None else ids | {end})

    def stop_texts(self, tokenizer: Any) -> tuple[str, ...]:
        """The stops to look for in the answer's text: those that the tokenizer has no control token for.

        A control token ends an answer by its id; the same characters in plain text are something the model talks about.
        """
        known = encoder(tokenizer, self.control).control_ids
        return tuple(stop for stop in self._stops if stop not in known)

    @property
    def _stops(self) -> tuple[str, ...]:
        return (*self.stop_strings, *self.next_turn)

    def _segments(self) -> Iterator[dict[str, Any]]:
        joined: str | None = None
        for part in self.parts:
            special = isinstance(part, Markup) and part.special
            apart = isinstance(part, Text) and part.apart
            if joined is not None and (special or apart):
                yield {"text": joined}
                joined = None
            if special:
                yield {"special": part.text}
            elif apart:
                yield {"text": part.text, "tokenized_separately": True}
            elif joined is not None or _shown(part):
                joined = (joined or "") + _shown(part)
        if joined is not None:
            yield {"text": joined}

    def _runs(self) -> list[list[tuple[bool, str]]]:
        """The parts as (is it markup, text), in runs that are tokenized one by one."""
        runs: list[list[tuple[bool, str]]] = [[]]
        for part in self.parts:
            own = isinstance(part, Text) and part.own
            if own:
                runs.append([])
            runs[-1].append((isinstance(part, Markup), part.text))
            if own:
                runs.append([])
        return [run for run in runs if run]


def _shown(part: Part) -> str:
    return part.text if isinstance(part, Markup) else (part.gap or "") + part.text
