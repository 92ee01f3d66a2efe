"""`LocalLLM`: a model in this process as LlamaIndex's LLM."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from llama_index.core.base.llms.generic_utils import messages_to_prompt as core_messages_to_prompt
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata, MessageRole
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.llm import default_completion_to_prompt
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from chatlocal.engine import embedded
from chatlocal.engine.call_arguments import refuse_unknown
from chatlocal.engine.engine import Engine, Messages
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.events import Event
from chatlocal.engine.families import Prompt
from chatlocal.engine.generation_defaults import DEFAULT_MAX_TOKENS, complete
from chatlocal.engine.messages import Sampling
from chatlocal.engine.shared import shared_engine
from chatlocal.engine.written_prompt import written_prompt
from chatlocal.integrations.llama_index_answers import AnswerSoFar
from chatlocal.integrations.llama_index_messages import from_engine, to_engine
from chatlocal.integrations.llama_index_options import SAMPLING_NAMES, CallOptions, read_options
from chatlocal.integrations.llama_index_react import react_step
from chatlocal.integrations.llama_index_reporting import (
    reported,
    reported_async,
    reported_async_stream,
    reported_stream,
)
from chatlocal.integrations.llama_index_structured import StructuredPrediction
from chatlocal.integrations.llama_index_structured_llm import LocalStructuredLLM
from chatlocal.integrations.llama_index_tools import ToolCalling

Response = TypeVar("Response")

_LOADING = (
    "device",
    "dtype",
    "revision",
    "token",
    "cache_dir",
    "adapter",
    "attn_implementation",
    "quantization",
    "num_threads",
    "template",
    "max_batch",
    "drafting",
    "cache_tokens",
    "max_waiting",
    "prefix_reuse",
    "tool_format",
    "call_threshold",
)


class LocalLLM(StructuredPrediction, ToolCalling):
    """A chat model in this process: `LocalLLM("path/or/hub-id")`, or `LocalLLM()` for the embedded default.

    The model is loaded at the first use; objects with the same loading options share it, and `engine=` puts one that
    is already there behind this object. Sampling arguments left out mean what the model's generation_config says, else
    greedy. Every call takes them too, and `max_new_tokens`, `response_format`, `logprobs` and `top_logprobs`; chats
    also take `tools`, `tool_choice`, `tool_required`, `parallel_tool_calls` and `allow_parallel_tool_calls`. The errors
    are those of chatlocal.engine.errors, UnsupportedInput for an argument that is not known.

    Any model calls tools: one that was not trained for them is told of them in words, and a call is demanded of it
    where one scores above `call_threshold`. The core's ReActAgent describes its tools in a prompt of its own; with
    `react_grammar` the steps that this prompt asks for come in the form that the agent reads.

    `system_prompt` opens every conversation and completion that does not open with it already. A completion is one
    user turn, put through `query_wrapper_prompt` if there is one. With `messages_to_prompt` or `completion_to_prompt`
    those write the whole prompt, control tokens included, and so does the caller of `complete(..., formatted=True)`.
    Both see the system prompt: the first as a message, the second in front of the query.
    """

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, description="Folder, hub id or GGUF file; None is the embedded default.")
    temperature: float | None = Field(default=None, description="0 is greedy.")
    max_tokens: int | None = Field(default=None, description="Most new tokens of an answer.")
    max_thinking_tokens: int | None = Field(
        default=None, description="Most of them to think with; None leaves half to an answer that has a form."
    )
    top_p: float | None = Field(default=None, description="Mass of the likeliest tokens to sample from.")
    top_k: int | None = Field(default=None, description="Number of the likeliest tokens to sample from; 0 is all.")
    min_p: float | None = Field(default=None, description="Least probability, as a share of the likeliest token's.")
    repetition_penalty: float | None = Field(default=None, description="Divides the logits of tokens that were seen.")
    presence_penalty: float | None = Field(default=None, description="Taken from the logits of tokens written already.")
    frequency_penalty: float | None = Field(default=None, description="The same, for each time they were written.")
    seed: int | None = Field(default=None, description="Makes sampling repeatable.")
    stop: list[str] | None = Field(default=None, description="Texts at which the answer ends, without them.")
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description='Options of the prompt format, such as {"enable_thinking": False}.'
    )
    timeout: float | None = Field(default=None, description="Seconds for one call.")
    context_window: int | None = Field(default=None, gt=0, description="Tokens to plan with instead of the model's.")
    react_grammar: bool = Field(default=True, description="Hold the steps of the core's ReActAgent in their form.")

    device: str | None = Field(default=None, description="cuda, mps, cpu; None takes the best there is.")
    dtype: str | None = Field(default=None, description="float32, bfloat16, float16; None suits the hardware.")
    revision: str | None = Field(default=None, description="Branch, tag or commit on the hub.")
    token: str | bool | None = Field(default=None, exclude=True, repr=False, description="Access token of the hub.")
    cache_dir: str | None = Field(default=None, description="Where downloads from the hub are kept.")
    adapter: str | None = Field(default=None, description="LoRA folder or hub id, merged at load.")
    attn_implementation: str | None = Field(default=None, description="As in transformers.")
    quantization: str | None = Field(default=None, description="Weights in fewer bits, such as torchao-int8.")
    num_threads: int | None = Field(default=None, description="torch's thread count, for the whole process.")
    template: str | None = Field(default=None, description="Prompt family, Jinja template, or path to one.")
    max_batch: int | None = Field(default=None, description="Most requests that share a forward pass.")
    drafting: bool | None = Field(default=None, description="False: likely ids are not read along with the next one.")
    cache_tokens: int | float | None = Field(
        default=None, description="Positions that the cache may have, or a share of the free memory up to 1.0."
    )
    max_waiting: int | None = Field(default=None, description="Requests that may wait; more raise EngineBusy.")
    prefix_reuse: bool | None = Field(
        default=None, description="False: a prompt does not start from what was read before."
    )
    tool_format: str | None = Field(default=None, description="How the model writes calls, a name of toolcalls.")
    call_threshold: float | None = Field(default=None, description="Score from which on an untrained model must call.")

    _engine: Engine | None = PrivateAttr(default=None)

    def __init__(
        self, model: str | os.PathLike[str] | None = None, *, engine: Engine | None = None, **settings: Any
    ) -> None:
        refuse_unknown(settings, (name for name in type(self).model_fields if name != "model"), type(self).__name__)
        super().__init__(**{"model": model, **settings})
        if engine is not None:
            given = [*(["model"] if model is not None else []), *self._loading()]
            if given:
                raise UnsupportedInput(f"engine is loaded already and takes no {', '.join(given)}: leave one side out.")
        self._engine = engine
        self._options({})  # values out of range are refused here, not in the first call

    @field_validator("model", "device", "dtype", "cache_dir", "adapter", "template", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> str | None:
        """Paths, torch.device and torch.dtype by name, so that the settings can be written as JSON."""
        return None if value is None else str(value).removeprefix("torch.")

    @field_validator("stop", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @classmethod
    def class_name(cls) -> str:
        return "LocalLLM"

    def __getstate__(self) -> dict[str, Any]:
        if self._engine is not None:  # the copy would come up with the default model
            raise UnsupportedInput("A LocalLLM over a given engine cannot be pickled: name the model instead.")
        state: dict[str, Any] = super().__getstate__()
        return state

    @property
    def engine(self) -> Engine:
        """The engine behind this object, loaded when it is first asked for."""
        if self._engine is not None:
            return self._engine
        return shared_engine(self.model, **self._loading())

    async def aload(self) -> Engine:
        """The engine; loading runs in a thread."""
        return self._engine if self._engine is not None else await asyncio.to_thread(lambda: self.engine)

    @property
    def metadata(self) -> LLMMetadata:
        """What the core plans with. Loads the model unless `context_window` says how much fits.

        `num_output` is `max_tokens`, else the model's own limit, but at most half the window: the core subtracts it
        from the room for the prompt.
        """
        engine = self.engine if self._engine is not None or self.context_window is None else None
        window = self.context_window or (engine and engine.context_length) or DEFAULT_CONTEXT_WINDOW
        limit = DEFAULT_MAX_TOKENS
        if engine is not None:
            configured = getattr(engine.model, "generation_config", None)
            limit = complete(Sampling(), configured, window).max_tokens or limit
        return LLMMetadata(
            context_window=window,
            num_output=self.max_tokens or max(1, min(limit, window // 2)),
            is_chat_model=True,
            is_function_calling_model=True,
            model_name=engine.name if engine is not None else self.model or embedded.NAME,
            system_role=MessageRole.SYSTEM,
        )

    @reported(llm_chat_callback)
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The whole answer to a conversation."""
        return self._whole(self._events(*self._conversation(messages, kwargs))).chat()

    @reported(llm_completion_callback)
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The whole answer to a prompt."""
        return self._whole(self._events(*self._completion(prompt, formatted, kwargs))).completion()

    @reported_stream(llm_chat_callback)
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Generator[ChatResponse, None, None]:
        """The answer as it comes: cumulative messages with deltas. Closing the generator ends the request."""
        events = self._events(*self._conversation(messages, kwargs))
        return self._growing(events, partial(AnswerSoFar.chat, streaming=True))

    @reported_stream(llm_completion_callback)
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> Generator[CompletionResponse, None, None]:
        """The answer as it comes: cumulative texts with deltas. Closing the generator ends the request."""
        events = self._events(*self._completion(prompt, formatted, kwargs))
        return self._growing(events, partial(AnswerSoFar.completion, streaming=True))

    @reported_async(llm_chat_callback)
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """`chat` for an event loop; cancelling the task ends the request."""
        return (await self._awhole(self._aevents(*self._conversation(messages, kwargs)))).chat()

    @reported_async(llm_completion_callback)
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """`complete` for an event loop; cancelling the task ends the request."""
        return (await self._awhole(self._aevents(*self._completion(prompt, formatted, kwargs)))).completion()

    @reported_async_stream(llm_chat_callback)
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> AsyncGenerator[ChatResponse, None]:
        """`stream_chat` for an event loop."""
        events = self._aevents(*self._conversation(messages, kwargs))
        return self._agrowing(events, partial(AnswerSoFar.chat, streaming=True))

    @reported_async_stream(llm_completion_callback)
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> AsyncGenerator[CompletionResponse, None]:
        """`stream_complete` for an event loop."""
        events = self._aevents(*self._completion(prompt, formatted, kwargs))
        return self._agrowing(events, partial(AnswerSoFar.completion, streaming=True))

    def as_structured_llm(self, output_cls: type[BaseModel], **kwargs: Any) -> StructuredLLM:
        """An LLM whose answers are objects of `output_cls`; in the DEFAULT mode its responses tell of their tries."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            return super().as_structured_llm(output_cls, **kwargs)
        return LocalStructuredLLM(llm=self, output_cls=output_cls, **kwargs)

    def _loading(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _LOADING if getattr(self, name) is not None}

    def _options(self, kwargs: dict[str, Any]) -> CallOptions:
        return read_options(
            {name: getattr(self, name) for name in (*SAMPLING_NAMES, "timeout", "chat_template_kwargs")}, kwargs
        )

    def _conversation(
        self, messages: Sequence[ChatMessage], kwargs: dict[str, Any]
    ) -> tuple[Messages | Prompt, CallOptions]:
        options = self._options(kwargs)
        messages = list(messages)
        if not self._opens_with_system_prompt(messages):  # the core's own callers have put it there already
            messages = self._extend_messages(messages)
        if self.react_grammar and not options.tools and kwargs.get("response_format") is None:
            options = replace(options, spec=react_step(messages))
        asked = to_engine(messages)
        if self.messages_to_prompt in (None, core_messages_to_prompt):
            return asked, options
        if options.schema is not None:
            asked = self.engine.ask_for_json(asked, options.schema)
        texts = from_engine(asked)  # refuses pictures, which a text cannot hold
        return self._written(self.messages_to_prompt(messages if options.schema is None else texts)), options

    def _completion(
        self, prompt: str, formatted: bool, kwargs: dict[str, Any]
    ) -> tuple[Messages | Prompt, CallOptions]:
        if kwargs.get("tools"):
            raise UnsupportedInput("A completion has no place for tool calls: use chat, or leave the tools out.")
        if formatted:
            return self._written(prompt), self._options(kwargs)
        if self.completion_to_prompt not in (None, default_completion_to_prompt):
            return self._written(self.completion_to_prompt(self._extend_prompt(prompt))), self._options(kwargs)
        if self.query_wrapper_prompt is not None:
            prompt = self.query_wrapper_prompt.format(query_str=prompt)
        return self._conversation([ChatMessage(role=MessageRole.USER, content=prompt)], kwargs)

    def _written(self, text: str) -> Prompt:
        return written_prompt(text, self.engine.tokenizer)

    def _opens_with_system_prompt(self, messages: Sequence[ChatMessage]) -> bool:
        return bool(messages) and messages[0].role == MessageRole.SYSTEM and messages[0].content == self.system_prompt

    def _events(self, prompt: Messages | Prompt, options: CallOptions) -> Iterator[Event]:
        return self.engine.stream(prompt, **_engine_arguments(prompt, options))

    def _aevents(self, prompt: Messages | Prompt, options: CallOptions) -> AsyncIterator[Event]:
        return self.engine.astream(prompt, **_engine_arguments(prompt, options))

    def _whole(self, events: Iterator[Event]) -> AnswerSoFar:
        answer = AnswerSoFar(self.engine.name)
        for event in events:
            answer.add(event)
        return answer

    async def _awhole(self, events: AsyncIterator[Event]) -> AnswerSoFar:
        answer = AnswerSoFar(self.engine.name)
        async for event in events:
            answer.add(event)
        return answer

    def _growing(
        self, events: Iterator[Event], shape: Callable[[AnswerSoFar], Response]
    ) -> Generator[Response, None, None]:
        answer = AnswerSoFar(self.engine.name)
        try:
            for event in events:
                answer.add(event)
                yield shape(answer)
        finally:
            events.close()  # type: ignore[attr-defined]

    async def _agrowing(
        self, events: AsyncIterator[Event], shape: Callable[[AnswerSoFar], Response]
    ) -> AsyncGenerator[Response, None]:
        answer = AnswerSoFar(self.engine.name)
        try:
            async for event in events:
                answer.add(event)
                yield shape(answer)
        finally:
            await events.aclose()  # type: ignore[attr-defined]


def _engine_arguments(prompt: Messages | Prompt, options: CallOptions) -> dict[str, Any]:
    # A prompt that is written already has the wish for a form in it.
    asked = {} if isinstance(prompt, Prompt) else {"answer_schema": options.schema, **options.family}
    return {
        "tools": options.tools,
        "tool_choice": options.tool_choice,
        "parallel_tool_calls": options.parallel,
        "spec": options.spec,
        "sampling": options.sampling,
        "timeout": options.timeout,
        **asked,
    }
