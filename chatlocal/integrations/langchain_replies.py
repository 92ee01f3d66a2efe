"""The engine's events -> LangChain's chunks."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGenerationChunk

from chatlocal.engine.events import Event, Finish, Reasoning, Text, TokenLogprob, Usage

PROVIDER = "chatlocal"


class ChunkWriter:
    """Turns the events of one answer into chunks, in order.

    `function` is the function whose arguments the answer is (OpenAI's older interface): then the text goes into
    `additional_kwargs["function_call"]`, the name with its first piece only, because langchain_core joins the pieces.
    """

    def __init__(self, model_name: str, function: str | None = None) -> None:
        self._model_name = model_name
        self._function = function
        self._named = False

    def write(self, event: Event) -> ChatGenerationChunk:
        match event:
            case Text():
                return ChatGenerationChunk(message=self._text(event.text))
            case Reasoning():
                return ChatGenerationChunk(
                    message=AIMessageChunk(content="", additional_kwargs={"reasoning_content": event.text})
                )
            case Finish():
                return self._last(event)
        raise TypeError(f"The engine sent {event!r} for a request without tools.")

    def _text(self, text: str) -> AIMessageChunk:
        if self._function is None:
            return AIMessageChunk(content=text)
        piece = {"arguments": text} if self._named else {"name": self._function, "arguments": text}
        self._named = True
        return AIMessageChunk(content="", additional_kwargs={"function_call": piece})

    def _last(self, finish: Finish) -> ChatGenerationChunk:
        """The only chunk with usage and metadata: merging chunks would add the counts and join the strings."""
        called = self._function is not None and finish.reason == "stop"
        reason = "function_call" if called else finish.reason
        metadata: dict[str, Any] = {
            "model_name": self._model_name,
            "model_provider": PROVIDER,
            "finish_reason": reason,
        }
        if finish.logprobs is not None:
            metadata["logprobs"] = {"content": [_token(token) for token in finish.logprobs]}
        message = AIMessageChunk(
            content="", response_metadata=metadata, usage_metadata=_usage(finish.usage), chunk_position="last"
        )
        return ChatGenerationChunk(message=message, generation_info={"finish_reason": reason})


def _usage(usage: Usage) -> UsageMetadata:
    counts = UsageMetadata(input_tokens=usage.prompt, output_tokens=usage.completion, total_tokens=usage.total)
    if usage.cached:
        counts["input_token_details"] = InputTokenDetails(cache_read=usage.cached)
    if usage.reasoning:
        counts["output_token_details"] = OutputTokenDetails(reasoning=usage.reasoning)
    return counts


def _token(token: TokenLogprob) -> dict[str, Any]:
    """OpenAI's shape of one token's log-probability."""
    return {**_spelled(token), "top_logprobs": [_spelled(other) for other in token.top]}


def _spelled(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.data)}
