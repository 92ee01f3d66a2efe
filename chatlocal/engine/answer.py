"""Ids -> events: what one request's ids mean as an answer. It knows no model and no scheduling."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from chatlocal.engine.constraints.vocabulary import token_bytes
from chatlocal.engine.detokenize import Detokenizer
from chatlocal.engine.events import Event, Finish, FinishReason, Text, TokenLogprob, Usage
from chatlocal.engine.parse import StopMatcher
from chatlocal.engine.runtime.backend import Done, IdLogprob, TokenEvent


class AnswerReader:
    """Feed it the token events of one request, in order; it gives the events of the answer.

    After `finished` nothing more may be fed: a stop string was found or the backend was done.
    """

    def __init__(self, tokenizer: Any, stop_strings: tuple[str, ...], prompt_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(stop_strings)
        self._prompt_tokens = prompt_tokens
        self._logprobs: list[TokenLogprob | None] = []
        """One for each id so far, None where the backend reported nothing."""
        self.finished = False

    def feed(self, event: TokenEvent) -> list[Event]:
        """The events that became final with this one. Ids after a stop string are not counted."""
        if isinstance(event, Done):
            events = self._text(self._detokenizer.flush())
            return events if self.finished else [*events, *self._finish(event.reason)]
        if event.replaces:
            self._detokenizer.rewind(event.replaces)
            del self._logprobs[-event.replaces :]
        events = []
        for new, report in zip_longest(event.ids, event.logprobs[: len(event.ids)]):
            self._logprobs.append(None if report is None else self._logprob(report))
            events += self._text(self._detokenizer.feed((new,)))
            if self.finished:
                break
        return events

    def _text(self, text: str) -> list[Event]:
        safe = self._stops.feed(text)
        events: list[Event] = [Text(safe)] if safe else []
        return events if self._stops.stopped is None else [*events, *self._finish("stop")]

    def _finish(self, reason: FinishReason) -> list[Event]:
        self.finished = True
        rest = self._stops.flush()
        reports = [report for report in self._logprobs if report is not None]
        usage = Usage(self._prompt_tokens, len(self._logprobs))
        finish = Finish(reason, usage, tuple(reports) if reports else None, self._stops.stopped)
        return [Text(rest), finish] if rest else [finish]

    def _logprob(self, value: IdLogprob) -> TokenLogprob:
        return TokenLogprob(
            value.id,
            *self._spelling(value.id),
            value.logprob,
            tuple(TokenLogprob(id, *self._spelling(id), logprob) for id, logprob in value.top),
        )

    def _spelling(self, id: int) -> tuple[str, bytes]:
        spelled = token_bytes(self._tokenizer)
        data = spelled[id] if id < len(spelled) else b""
        if not data:  # a control token: shown by its name
            return str(self._tokenizer.convert_ids_to_tokens(id)), b""
        return data.decode("utf-8", "replace"), data
