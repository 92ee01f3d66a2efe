"""Ids -> events: what one request's ids mean as an answer. It knows no model and no scheduling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from chatlocal.engine.confidence import Choices
from chatlocal.engine.constraints.left_to_validation import left_to_validation
from chatlocal.engine.constraints.spec import Spec
from chatlocal.engine.constraints.vocabulary import token_bytes
from chatlocal.engine.detokenize import Detokenizer
from chatlocal.engine.events import (
    CallDelta,
    CallInvalid,
    CallStart,
    Event,
    Finish,
    FinishReason,
    Reasoning,
    Text,
    TokenLogprob,
    Usage,
)
from chatlocal.engine.parse import StopMatcher
from chatlocal.engine.runtime.backend import Done, IdLogprob, TokenEvent
from chatlocal.engine.toolcalls import CallParser


class AnswerReader:
    """Feed it the token events of one request, in order; it gives the events of the answer.

    `turn_ends` are texts that end the model's turn wherever they stand, `stops` those that end the text of the answer:
    calls and thinking may hold them. `parser` takes calls and thinking apart from the text, `keep` are the control ids
    that it has to see, `spec` is what the answer was constrained to. After `finished` nothing more may be fed: the
    answer was over or the backend was done.
    """

    def __init__(
        self,
        tokenizer: Any,
        stops: tuple[str, ...],
        prompt_tokens: int,
        *,
        turn_ends: tuple[str, ...] = (),
        parser: CallParser | None = None,
        keep: frozenset[int] = frozenset(),
        spec: Spec | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, keep=keep)
        # Without a parser all is text, and one matcher finds whichever comes first.
        self._turn = StopMatcher(turn_ends if parser is not None else (*turn_ends, *stops))
        self._stops = StopMatcher(stops if parser is not None else ())
        self._parser = parser
        self._prompt_tokens = prompt_tokens
        self._spec = spec
        self._logprobs: list[TokenLogprob | None] = []
        """One for each id so far, None where the backend reported nothing."""
        self._choices = Choices()
        self._written: dict[int | None, list[str]] = {}
        """The text of the answer (None) and the arguments of each call, as far as they are out."""
        self._started: set[int] = set()
        self._broken: set[int] = set()
        self._thinks = False
        self._thought = 0
        self._cached = 0
        self.finished = False

    def feed(self, event: TokenEvent) -> list[Event]:
        """The events that became final with this one. Ids after the end of the answer are not counted."""
        events = self._events(event)
        if self._spec is None:
            return events
        for one in events:
            if isinstance(one, Text):
                self._written.setdefault(None, []).append(one.text)
            elif isinstance(one, CallDelta):
                self._written.setdefault(one.index, []).append(one.arguments)
        return [replace(one, confidence=self._confidence()) if isinstance(one, Finish) else one for one in events]

    def _events(self, event: TokenEvent) -> list[Event]:
        self._cached = event.cached
        if isinstance(event, Done):
            if self._spec is not None:
                self._choices.add(b"", event.choice)  # of a number it says that no digit follows
            events = self._text(self._detokenizer.flush())
            return events if self.finished else [*events, *self._finish(event.reason)]
        if event.replaces:
            self._detokenizer.rewind(event.replaces)
            del self._logprobs[-event.replaces :]
            if self._spec is not None:
                self._choices.rewind(event.replaces)
        if self._spec is not None and event.choices:
            for new, choice in zip(event.ids, event.choices, strict=True):
                self._choices.add(self._data(new), choice)
        events = []
        for new, report in zip_longest(event.ids, event.logprobs[: len(event.ids)]):
            self._logprobs.append(None if report is None else self._logprob(report))
            found = self._text(self._detokenizer.feed((new,)))
            self._count_thought(found)
            events += found
            if self.finished:
                break
        return events

    def _text(self, text: str) -> list[Event]:
        safe = self._turn.feed(text)
        events = self._read(safe) if safe else []
        over = self._turn.stopped is not None or (self._parser is not None and self._parser.over)
        if self._stops.stopped is None and not over:
            return events
        return [*events, *self._finish("stop")]

    def _read(self, text: str) -> list[Event]:
        """The events of a piece of the turn."""
        if self._parser is None:
            return [Text(text)]
        return list(self._checked(self._parser.feed(text)))

    def _checked(self, events: list[Event]) -> Iterator[Event]:
        """The events up to a stop in the text."""
        for event in events:
            if self._stops.stopped is not None:
                return
            if isinstance(event, Text):
                if safe := self._stops.feed(event.text):
                    yield Text(safe)
                continue
            # A stop does not reach over what stands between two texts.
            if rest := self._stops.flush():
                yield Text(rest)
            if isinstance(event, CallStart):
                self._started.add(event.index)
            elif isinstance(event, CallInvalid):
                self._broken.add(event.index)
            yield event

    def _finish(self, reason: FinishReason) -> list[Event]:
        self.finished = True
        rest = self._turn.flush()
        events = self._read(rest) if rest else []
        if self._parser is not None:
            if self._stops.stopped is None:
                events += self._checked(self._parser.flush())
            if held := self._stops.flush():
                events.append(Text(held))
        if reason == "stop" and self._started - self._broken:
            reason = "tool_calls"
        reports = [report for report in self._logprobs if report is not None]
        usage = Usage(self._prompt_tokens, len(self._logprobs), self._cached, self._thought)
        stopped = self._stops.stopped or self._turn.stopped
        left = () if self._spec is None else left_to_validation(self._spec)
        return [*events, Finish(reason, usage, tuple(reports) if reports else None, stopped, left)]

    def _confidence(self) -> dict[str, float] | None:
        """That in the answer, or in the arguments of its only call."""
        calls = [index for index in self._written if index is not None]
        if len(calls) > 1:
            return None
        written = self._written.get(calls[0] if calls else None, ())
        return self._choices.of_json("".join(written).strip()) if written else None

    def _count_thought(self, events: list[Event]) -> None:
        """Ids of thinking, the marks around it included; an id that gives nothing yet goes with the one before."""
        kinds = {type(event) for event in events} - {Finish}
        if kinds:
            self._thinks = kinds == {Reasoning}
        self._thought += self._thinks

    def _logprob(self, value: IdLogprob) -> TokenLogprob:
        return TokenLogprob(
            value.id,
            *self._spelling(value.id),
            value.logprob,
            tuple(TokenLogprob(id, *self._spelling(id), logprob) for id, logprob in value.top),
        )

    def _data(self, id: int) -> bytes:
        spelled = token_bytes(self._tokenizer)
        return spelled[id] if id < len(spelled) else b""

    def _spelling(self, id: int) -> tuple[str, bytes]:
        data = self._data(id)
        if not data:  # a control token: shown by its name
            return str(self._tokenizer.convert_ids_to_tokens(id)), b""
        return data.decode("utf-8", "replace"), data
