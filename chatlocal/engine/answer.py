"""Ids -> events: what one request's ids mean as an answer. It knows no model and no scheduling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chatlocal.engine.constraints.vocabulary import token_bytes
from chatlocal.engine.detokenize import Detokenizer
from chatlocal.engine.events import Event, Finish, FinishReason, Text, TokenLogprob, Usage
from chatlocal.engine.parse import StopMatcher
from chatlocal.engine.runtime.backend import Done, IdLogprob, TokenEvent, Tokens


class AnswerReader:
    """Feed it the token events of one request, in order; it gives the events of the answer.

    After `finished` nothing more may be fed: a stop string was found or the backend was done.
    """

    def __init__(self, tokenizer: Any, stop_strings: tuple[str, ...], prompt_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(stop_strings)
        self._prompt_tokens = prompt_tokens
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] | None = None
        self.finished = False

    def feed(self, event: TokenEvent) -> Iterator[Event]:
        if isinstance(event, Done):
            yield from self._text(self._detokenizer.flush())
            if not self.finished:
                yield from self._finish(event.reason)
            return
        for text in self._read(event):
            yield from self._text(text)
            if self.finished:
                return

    def _read(self, event: Tokens) -> Iterator[str]:
        """Text of the new ids, one at a time so that ids after a stop are not counted."""
        for index, new in enumerate(event.ids):
            self._ids.append(new)
            if index < len(event.logprobs):
                self._logprobs = self._logprobs if self._logprobs is not None else []
                self._logprobs.append(self._logprob(event.logprobs[index]))
            yield self._detokenizer.feed((new,))

    def _text(self, text: str) -> Iterator[Event]:
        safe = self._stops.feed(text)
        if safe:
            yield Text(safe)
        if self._stops.stopped is not None and not self.finished:
            yield from self._finish("stop")

    def _finish(self, reason: FinishReason) -> Iterator[Event]:
        self.finished = True
        rest = self._stops.flush()
        if rest:
            yield Text(rest)
        usage = Usage(self._prompt_tokens, len(self._ids))
        yield Finish(reason, usage, tuple(self._logprobs) if self._logprobs is not None else None, self._stops.stopped)

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
