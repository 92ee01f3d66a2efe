"""The engine's events -> LlamaIndex responses, whole or growing."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
)

from chatlocal.engine.events import Event, Finish, Reasoning, Text, TokenLogprob


class AnswerSoFar:
    """Folds events; after each one `chat` and `completion` give the cumulative response with what the event added.

    The last event brings usage, finish reason and log-probabilities, on that response only.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._text = ""
        self._reasoning = ""
        self._delta = ""
        self._thinking_delta = ""
        self._finish: Finish | None = None

    def add(self, event: Event) -> None:
        self._delta = self._thinking_delta = ""
        match event:
            case Text():
                self._delta = event.text
                self._text += event.text
            case Reasoning():
                self._thinking_delta = event.text
                self._reasoning += event.text
            case Finish():
                self._finish = event

    def chat(self, *, streaming: bool = False) -> ChatResponse:
        """The answer as a chat response; a streamed one carries its delta."""
        thoughts = [ThinkingBlock(content=self._reasoning, num_tokens=self._reasoning_tokens())]
        return ChatResponse(
            message=ChatMessage(
                role=MessageRole.ASSISTANT,
                blocks=[*(thoughts if self._reasoning else []), TextBlock(text=self._text)],
            ),
            delta=self._delta if streaming else None,
            raw=self._raw(),
            logprobs=self._logprobs(),
            additional_kwargs=self._additional(streaming),
        )

    def completion(self, *, streaming: bool = False) -> CompletionResponse:
        """The answer as a completion response; a streamed one carries its delta."""
        return CompletionResponse(
            text=self._text,
            delta=self._delta if streaming else None,
            raw=self._raw(),
            logprobs=self._logprobs(),
            additional_kwargs=self._additional(streaming),
        )

    def _usage(self) -> dict[str, int]:
        if self._finish is None:
            return {}
        usage = self._finish.usage
        return {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
        }

    def _reasoning_tokens(self) -> int | None:
        return self._finish.usage.reasoning if self._finish is not None else None

    def _raw(self) -> dict[str, Any] | None:
        """Plain JSON values: token counters and tracers read it."""
        if self._finish is None:
            return None
        return {"usage": self._usage(), "finish_reason": self._finish.reason, "model": self._model}

    def _additional(self, streaming: bool) -> dict[str, Any]:
        # Agents read thinking_delta from streamed responses.
        thinking = {"thinking_delta": self._thinking_delta} if streaming and self._thinking_delta else {}
        return {**thinking, **self._usage()}

    def _logprobs(self) -> list[list[LogProb]] | None:
        if self._finish is None or self._finish.logprobs is None:
            return None
        return [_alternatives(token) for token in self._finish.logprobs]


def _alternatives(token: TokenLogprob) -> list[LogProb]:
    """The chosen id first, then the others that were asked for, best first."""
    ranked = [token, *(other for other in token.top if other.id != token.id)]
    return [LogProb(token=each.token, logprob=each.logprob, bytes=list(each.data)) for each in ranked]
