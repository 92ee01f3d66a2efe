"""What comes out of the engine: a stream of frozen events, and `collect`, which folds them into one reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from chatlocal.engine.messages import ChatMessage, InvalidCall, ToolCall

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer; the pieces concatenate to the whole."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's thinking, kept apart from the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins: sent once for each call, before its arguments."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the arguments (JSON text) of call `index`."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class CallInvalid:
    """What looked like a call and could not be read: nothing of it is lost."""

    index: int
    raw: str
    error: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of ids. `cached` of the prompt ids needed no forward; `reasoning` of the completion ids were thinking.

    What was in the cache is no part of an answer: usages that differ in `cached` alone are equal.
    """

    prompt: int
    completion: int
    cached: int = field(default=0, compare=False)
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One id with its natural-log probability under the model, before temperature, penalties and grammar masks.

    `token` is the id's own text (U+FFFD where it is only part of a character), `data` its bytes. `top` are the most
    likely ids at this position, best first, without alternatives of their own.
    """

    id: int
    token: str
    data: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finish:
    """The last event. `stop` is the stop text that ended the answer, if one did.

    `left_to_validation` names what the form of the answer asks for and no grammar enforces, such as "uniqueItems at
    /properties/tags": check it. `confidence`, of an answer or a single call in JSON under a grammar, has the
    probability of each value by its JSON pointer ("" is the whole): the product of its choices among what was allowed.
    """

    reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop: str | None = None
    left_to_validation: tuple[str, ...] = ()
    confidence: Mapping[str, float] | None = field(default=None, compare=False)


Event = Text | Reasoning | CallStart | CallDelta | CallInvalid | Finish


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    message: ChatMessage
    invalid_calls: tuple[InvalidCall, ...]
    finish: Finish


def collect(events: Iterable[Event]) -> Reply:
    """Fold a stream of events into one reply. ValueError when the stream ends without a Finish."""
    text: list[str] = []
    reasoning: list[str] = []
    starts: dict[int, CallStart] = {}
    arguments: dict[int, list[str]] = {}
    invalid: list[InvalidCall] = []
    finish: Finish | None = None
    for event in events:
        match event:
            case Text():
                text.append(event.text)
            case Reasoning():
                reasoning.append(event.text)
            case CallStart():
                starts[event.index] = event
                arguments[event.index] = []
            case CallDelta():
                arguments[event.index].append(event.arguments)
            case CallInvalid():
                broken = starts.pop(event.index, None)
                invalid.append(InvalidCall(event.raw, event.error, broken.name if broken else None))
            case Finish():
                finish = event
    if finish is None:
        raise ValueError("The stream of events ended without a Finish event.")
    calls = tuple(ToolCall(start.id, start.name, "".join(arguments[index])) for index, start in sorted(starts.items()))
    message = ChatMessage("assistant", "".join(text), calls, reasoning="".join(reasoning) or None)
    return Reply(message, tuple(invalid), finish)
