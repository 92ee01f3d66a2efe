"""The engine's events -> LlamaIndex responses, whole or growing."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from pydantic_core import from_json

from chatlocal.engine.events import CallDelta, CallInvalid, CallStart, Event, Finish, Reasoning, Text, TokenLogprob

_logger = logging.getLogger(__name__)


class AnswerSoFar:
    """Folds events; after each one `chat` and `completion` give the cumulative response with what the event added.

    The last event brings usage, finish reason and log-probabilities, on that response only. Calls stand in the message
    as blocks, with as much of their arguments as there is, and in OpenAI's shape under `tool_calls` of its
    additional_kwargs, where the core's programs look for them; those that cannot be read under `invalid_tool_calls`.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._text = ""
        self._reasoning = ""
        self._delta = ""
        self._thinking_delta = ""
        self._calls: dict[int, _Call] = {}
        self._invalid: list[dict[str, Any]] = []
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
            case CallStart():
                self._calls[event.index] = _Call(event.id, event.name)
            case CallDelta():
                self._calls[event.index].grow(event.arguments)
            case CallInvalid():
                self._break(event)
            case Finish():
                self._finish = event

    def chat(self, *, streaming: bool = False) -> ChatResponse:
        """The answer as a chat response; a streamed one carries its delta."""
        return ChatResponse(
            message=self._message(),
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

    def _message(self) -> ChatMessage:
        calls = [call for _, call in sorted(self._calls.items())]
        thoughts = [ThinkingBlock(content=self._reasoning, num_tokens=self._reasoning_tokens())]
        texts = [TextBlock(text=self._text)]
        extra = {"tool_calls": [call.in_openai_shape() for call in calls], "invalid_tool_calls": [*self._invalid]}
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            blocks=[
                *(thoughts if self._reasoning else []),
                *(texts if self._text or not calls else []),
                *(call.block() for call in calls),
            ],
            additional_kwargs={name: listed for name, listed in extra.items() if listed},
        )

    def _break(self, event: CallInvalid) -> None:
        """What looked like a call is none: it may have been begun as one."""
        begun = self._calls.pop(event.index, None)
        self._invalid.append(
            {
                "id": begun.id if begun else None,
                "name": begun.name if begun else None,
                "raw": event.raw,
                "error": event.error,
            }
        )
        # Agents take an answer without calls for the last one, and show nothing of this.
        _logger.warning("A tool call cannot be read and is left to invalid_tool_calls of the message: %s.", event.error)

    def _usage(self) -> dict[str, int]:
        if self._finish is None:
            return {}
        usage = self._finish.usage
        cached = {"cached_prompt_tokens": usage.cached} if usage.cached else {}
        return {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
            **cached,
        }

    def _reasoning_tokens(self) -> int | None:
        return self._finish.usage.reasoning if self._finish is not None else None

    def _raw(self) -> dict[str, Any] | None:
        """Plain JSON values: token counters and tracers read it."""
        if self._finish is None:
            return None
        left, confidence = list(self._finish.left_to_validation), self._finish.confidence
        return {
            "usage": self._usage(),
            "finish_reason": self._finish.reason,
            "model": self._model,
            **({"left_to_validation": left} if left else {}),
            **({"confidence": dict(confidence)} if confidence is not None else {}),
        }

    def _additional(self, streaming: bool) -> dict[str, Any]:
        # Agents read thinking_delta from streamed responses.
        thinking = {"thinking_delta": self._thinking_delta} if streaming and self._thinking_delta else {}
        return {**thinking, **self._usage()}

    def _logprobs(self) -> list[list[LogProb]] | None:
        if self._finish is None or self._finish.logprobs is None:
            return None
        return [_alternatives(token) for token in self._finish.logprobs]


@dataclass(slots=True)
class _Call:
    """One call as far as it was written."""

    id: str
    name: str
    arguments: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def grow(self, text: str) -> None:
        self.arguments += text
        self.values = read_arguments(self.arguments)

    def block(self) -> ToolCallBlock:
        return ToolCallBlock(tool_call_id=self.id, tool_name=self.name, tool_kwargs=self.values)

    def in_openai_shape(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as far as their JSON text goes; {} where there is no beginning of an object yet."""
    try:
        values = json.loads(text)
    except ValueError:
        try:
            values = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return {}
    return values if isinstance(values, dict) else {}


def _alternatives(token: TokenLogprob) -> list[LogProb]:
    """The chosen id first, then the others that were asked for, best first."""
    ranked = [token, *(other for other in token.top if other.id != token.id)]
    return [LogProb(token=each.token, logprob=each.logprob, bytes=list(each.data)) for each in ranked]
