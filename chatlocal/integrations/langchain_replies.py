"""The engine's events -> LangChain's chunks."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

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
from chatlocal.integrations.langchain_calls import INVALID_CALLS, spoiled

PROVIDER = "chatlocal"

# Content blocks of messages in LangChain's v1 form are numbered from 0 on, and blocks of one number are merged.
_AFTER_ALL_BLOCKS = 1_000_000


class ChunkWriter:
    """Turns the events of one answer into chunks, in order.

    `function` is the function whose arguments the answer is (OpenAI's older interface): then the text goes into
    `additional_kwargs["function_call"]`, the name with its first piece only, because langchain_core joins the pieces.
    With `legacy` a call goes there too; a second one, for which it has no place, is a tool call. `blocks`: the chunks
    will be turned into content blocks.
    """

    def __init__(
        self, model_name: str, function: str | None = None, *, legacy: bool = False, blocks: bool = False
    ) -> None:
        self._model_name = model_name
        self._function = function
        self._named = False
        self._legacy = legacy
        self._legacy_call: int | None = None
        self._first = _AFTER_ALL_BLOCKS if blocks else 0
        self._calls: dict[int, CallStart] = {}
        self._arguments: dict[int, str] = {}

    def write(self, event: Event) -> ChatGenerationChunk:
        match event:
            case Text():
                message = self._text(event.text)
            case Reasoning():
                message = AIMessageChunk(content="", additional_kwargs={"reasoning_content": event.text})
            case CallStart():
                message = self._start(event)
            case CallDelta():
                message = self._delta(event)
            case CallInvalid():
                message = self._invalid(event)
            case Finish():
                return self._last(event)
        return ChatGenerationChunk(message=message)

    def _text(self, text: str) -> AIMessageChunk:
        if self._function is None:
            return AIMessageChunk(content=text)
        name = None if self._named else self._function
        self._named = True
        return _function_call(text, name)

    def _start(self, event: CallStart) -> AIMessageChunk:
        self._calls[event.index] = event
        self._arguments[event.index] = ""
        if self._legacy and self._legacy_call is None:
            self._legacy_call = event.index
            return _function_call("", event.name)
        return self._piece(event.index, "", name=event.name, id=event.id)

    def _delta(self, event: CallDelta) -> AIMessageChunk:
        self._arguments[event.index] += event.arguments
        if event.index == self._legacy_call:
            return _function_call(event.arguments)
        return self._piece(event.index, event.arguments)

    def _invalid(self, event: CallInvalid) -> AIMessageChunk:
        """Ends the call so that adding up the chunks makes an invalid one of it."""
        start = self._calls.get(event.index)
        name, id = (start.name, start.id) if start else (None, None)
        streamed = start is not None and event.index != self._legacy_call
        written = self._arguments[event.index] if streamed else event.raw
        message = self._piece(
            event.index,
            spoiled(written)[len(written) if streamed else 0 :],
            name=None if streamed else name,
            id=None if streamed else id,
        )
        call = invalid_tool_call(name=name, args=event.raw, id=id, error=event.error)
        message.response_metadata = {INVALID_CALLS: [call]}
        return message

    def _piece(self, index: int, arguments: str, name: str | None = None, id: str | None = None) -> AIMessageChunk:
        piece = tool_call_chunk(name=name, args=arguments, id=id, index=self._first + index)
        return AIMessageChunk(content="", tool_call_chunks=[piece])

    def _last(self, finish: Finish) -> ChatGenerationChunk:
        """The only chunk with usage and metadata: merging chunks would add the counts and join the strings."""
        reason = self._reason(finish.reason)
        metadata: dict[str, Any] = {
            "model_name": self._model_name,
            "model_provider": PROVIDER,
            "finish_reason": reason,
        }
        if finish.left_to_validation:
            metadata["left_to_validation"] = list(finish.left_to_validation)
        if finish.confidence is not None:
            metadata["confidence"] = dict(finish.confidence)
        if finish.logprobs is not None:
            metadata["logprobs"] = {"content": [_token(token) for token in finish.logprobs]}
        message = AIMessageChunk(
            content="", response_metadata=metadata, usage_metadata=_usage(finish.usage), chunk_position="last"
        )
        return ChatGenerationChunk(message=message, generation_info={"finish_reason": reason})

    def _reason(self, reason: FinishReason) -> str:
        forced = self._function is not None and reason == "stop"
        called = self._legacy_call is not None and reason == "tool_calls"
        return "function_call" if forced or called else reason


def with_whole_calls(result: ChatResult) -> ChatResult:
    """An answer that was added up from its chunks, with the calls that could not be read as they were written."""
    message = result.generations[0].message
    if isinstance(message, AIMessage) and INVALID_CALLS in message.response_metadata:
        message.invalid_tool_calls = list(message.response_metadata[INVALID_CALLS])
    return result


def _function_call(arguments: str, name: str | None = None) -> AIMessageChunk:
    named = {} if name is None else {"name": name}
    return AIMessageChunk(content="", additional_kwargs={"function_call": {**named, "arguments": arguments}})


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
