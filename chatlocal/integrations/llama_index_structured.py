"""The four forms of structured prediction, by grammar instead of by prompt and parser."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.instrumentation.events.llm import (
    LLMStructuredPredictEndEvent,
    LLMStructuredPredictInProgressEvent,
    LLMStructuredPredictStartEvent,
)
from llama_index.core.llms.llm import LLM
from llama_index.core.program.utils import FlexibleModel, create_flexible_model
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.types import Model, PydanticProgramMode
from llama_index_instrumentation import get_dispatcher
from pydantic import BaseModel
from pydantic_core import from_json

from chatlocal.engine.constraints.validation import check
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput

_dispatcher = get_dispatcher(__name__)

# The core's programs take these out of llm_kwargs, and so do we: they speak of tools.
_TOOL_ARGUMENTS = ("tool_required", "tool_choice", "allow_parallel_tool_calls")


class StructuredPrediction(LLM):
    """Structured prediction over the chat endpoints with a JSON schema as `response_format`.

    This is the DEFAULT program mode. The other modes go to the core's programs: LLM asks in the prompt and parses,
    FUNCTION and OPENAI demand a call of a function that has the class for its arguments. An answer that does not fit
    the class (one that a validator of it refuses) raises OutputInvalid with the raw text.
    """

    def structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """An object of `output_cls`; `llm_kwargs` go to `chat`, `prompt_args` fill the prompt."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            other: Model = LLM.structured_predict(self._for_programs(), output_cls, prompt, llm_kwargs, **prompt_args)
            return other
        _started(output_cls, prompt, prompt_args)
        response = self.chat(self._request(prompt, prompt_args), **_arguments(output_cls, llm_kwargs))
        return _ended(_read(output_cls, response))

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """`structured_predict` for an event loop."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            other: Model = await LLM.astructured_predict(
                self._for_programs(), output_cls, prompt, llm_kwargs, **prompt_args
            )
            return other
        _started(output_cls, prompt, prompt_args)
        response = await self.achat(self._request(prompt, prompt_args), **_arguments(output_cls, llm_kwargs))
        return _ended(_read(output_cls, response))

    def stream_structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Generator[Model | FlexibleModel, None, None]:
        """Growing partial objects (FlexibleModel, fields not yet written are None), then the object of `output_cls`."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            yield from LLM.stream_structured_predict(
                self._for_programs(), output_cls, prompt, llm_kwargs, **prompt_args
            )
            return
        _started(output_cls, prompt, prompt_args)
        partials = _Partials(output_cls)
        responses = self.stream_chat(self._request(prompt, prompt_args), **_arguments(output_cls, llm_kwargs))
        try:
            for response in responses:
                partial = partials.grown(response)
                if partial is not None:
                    yield _progress(partial)
        finally:
            responses.close()
        yield _progress(result := _read(output_cls, response))
        _ended(result)

    async def astream_structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> AsyncGenerator[Model | FlexibleModel, None]:
        """`stream_structured_predict` for an event loop."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            others: AsyncGenerator[Model | FlexibleModel, None] = await LLM.astream_structured_predict(
                self._for_programs(), output_cls, prompt, llm_kwargs, **prompt_args
            )
            return others
        return self._astream_structured(output_cls, prompt, llm_kwargs, prompt_args)

    async def _astream_structured(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None,
        prompt_args: dict[str, Any],
    ) -> AsyncGenerator[Model | FlexibleModel, None]:
        _started(output_cls, prompt, prompt_args)
        partials = _Partials(output_cls)
        responses = await self.astream_chat(self._request(prompt, prompt_args), **_arguments(output_cls, llm_kwargs))
        try:
            async for response in responses:
                partial = partials.grown(response)
                if partial is not None:
                    yield _progress(partial)
        finally:
            await responses.aclose()
        yield _progress(result := _read(output_cls, response))
        _ended(result)

    def _for_programs(self) -> LLM:
        """This object as the core's programs take it: the one for OPENAI takes OpenAI's class alone."""
        if self.pydantic_program_mode != PydanticProgramMode.OPENAI:
            return self
        return self.model_copy(update={"pydantic_program_mode": PydanticProgramMode.FUNCTION})

    def _request(self, prompt: BasePromptTemplate, prompt_args: dict[str, Any]) -> list[ChatMessage]:
        return self._extend_messages(prompt.format_messages(llm=self, **prompt_args))


class _Partials:
    """The object as far as the streamed JSON text goes."""

    def __init__(self, output_cls: type[BaseModel]) -> None:
        self._flexible = create_flexible_model(output_cls)
        self._data: Any = None

    def grown(self, response: ChatResponse) -> FlexibleModel | None:
        """The partial object if this response adds to it."""
        try:
            data = from_json(response.message.content or "", allow_partial="trailing-strings")
        except ValueError:  # not even a beginning yet
            return None
        if not isinstance(data, dict) or data == self._data:
            return None
        self._data = data
        return self._flexible.model_validate(data)


def _arguments(output_cls: type[BaseModel], llm_kwargs: dict[str, Any] | None) -> dict[str, Any]:
    given = {name: value for name, value in (llm_kwargs or {}).items() if name not in _TOOL_ARGUMENTS}
    if "response_format" in given:
        raise UnsupportedInput("Structured prediction sets response_format itself: leave it out of llm_kwargs.")
    if given.get("tools"):
        raise UnsupportedInput("Structured prediction calls no tools: leave them out of llm_kwargs.")
    if not isinstance(output_cls, type) or not hasattr(output_cls, "model_json_schema"):
        raise UnsupportedInput(f"Structured prediction takes a Pydantic model class, got {output_cls!r:.80}.")
    schema = {"name": output_cls.__name__, "schema": output_cls.model_json_schema()}
    return {**given, "response_format": {"type": "json_schema", "json_schema": schema}}


def _read(output_cls: type[Model], response: ChatResponse) -> Model:
    text = response.message.content or ""
    try:
        result: Model = check(output_cls, text)
    except OutputInvalid as error:
        if response.raw["finish_reason"] == "length":  # type: ignore[index]
            raise OutputInvalid(
                f"The answer was cut off at its token limit (raise max_tokens): {error}", text
            ) from error
        raise
    return result


def _started(output_cls: type[BaseModel], prompt: BasePromptTemplate, prompt_args: dict[str, Any]) -> None:
    _dispatcher.event(LLMStructuredPredictStartEvent(output_cls=output_cls, template=prompt, template_args=prompt_args))


def _progress(partial: Any) -> Any:
    _dispatcher.event(LLMStructuredPredictInProgressEvent(output=partial))
    return partial


def _ended(result: Model) -> Model:
    _dispatcher.event(LLMStructuredPredictEndEvent(output=result))
    return result
