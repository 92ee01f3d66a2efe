"""The four forms of structured prediction, by grammar instead of by prompt and parser."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
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
from pydantic import BaseModel, Field

from chatlocal.engine.constraints.validation import check
from chatlocal.engine.errors import BudgetTooSmall, ContextOverflow, Try, UnsupportedInput
from chatlocal.engine.partial_json import PartialJson
from chatlocal.engine.repair import Tries

_dispatcher = get_dispatcher(__name__)

# The core's programs take these out of llm_kwargs, and so do we: they speak of tools.
_TOOL_ARGUMENTS = ("tool_required", "tool_choice", "allow_parallel_tool_calls")
# A conversation that has grown by what was wrong may have no room left: then the answer that was refused is the last.
_NO_ROOM = (ContextOverflow, BudgetTooSmall)


@dataclass(frozen=True, slots=True)
class Prediction(Generic[Model]):
    """An object with the tries that it took, their tokens in all, and what the last response said (its `raw`)."""

    value: Model
    tries: tuple[Try, ...]
    usage: dict[str, int]
    raw: dict[str, Any]


class StructuredPrediction(LLM):
    """Structured prediction over the chat endpoints with a JSON schema as `response_format`.

    This is the DEFAULT program mode. The other modes go to the core's programs: LLM asks in the prompt and parses,
    FUNCTION and OPENAI demand a call of a function that has the class for its arguments. An answer that does not fit
    the class (one that a validator of it refuses) goes back to the model with the reason, `max_retries` times at most
    and not where it was cut at max_tokens; then it is an OutputInvalid, whose `tries` are all the answers with what was
    wrong. Streams ask once, and so do the core's programs.
    """

    max_retries: int = Field(
        default=0, ge=0, description="How often structured prediction shows the model an answer that does not validate."
    )

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
        return self.predicted(output_cls, prompt, llm_kwargs, prompt_args).value

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
        return (await self.apredicted(output_cls, prompt, llm_kwargs, prompt_args)).value

    def predicted(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None,
        prompt_args: dict[str, Any],
    ) -> Prediction[Model]:
        """`structured_predict` in the DEFAULT mode, with what it took."""
        arguments = _arguments(output_cls, llm_kwargs)
        _started(output_cls, prompt, prompt_args)
        question = _Question(output_cls, self._request(prompt, prompt_args), self.max_retries)
        question.take(self.chat(question.messages, **arguments))
        while question.again:
            try:
                question.take(self.chat(question.messages, **arguments))
            except _NO_ROOM:
                break
        return _ended(question.prediction())

    async def apredicted(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None,
        prompt_args: dict[str, Any],
    ) -> Prediction[Model]:
        """`predicted` for an event loop."""
        arguments = _arguments(output_cls, llm_kwargs)
        _started(output_cls, prompt, prompt_args)
        question = _Question(output_cls, self._request(prompt, prompt_args), self.max_retries)
        question.take(await self.achat(question.messages, **arguments))
        while question.again:
            try:
                question.take(await self.achat(question.messages, **arguments))
            except _NO_ROOM:
                break
        return _ended(question.prediction())

    def stream_structured_predict(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Generator[Model | FlexibleModel, None, None]:
        """Growing partial objects, then the object of `output_cls`.

        The partial ones are of the core's FlexibleModel, which has the fields of the class and validates nothing: what
        is not written yet is None, and what stands deeper is dicts and lists.
        """
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            yield from LLM.stream_structured_predict(
                self._for_programs(), output_cls, prompt, llm_kwargs, **prompt_args
            )
            return
        arguments = _arguments(output_cls, llm_kwargs)
        _started(output_cls, prompt, prompt_args)
        partials = _Partials(output_cls)
        question = _Question(output_cls, self._request(prompt, prompt_args))
        responses = self.stream_chat(question.messages, **arguments)
        try:
            for response in responses:
                grown = partials.grown(response)
                if grown is not None:
                    yield _progress(grown)
        finally:
            responses.close()
        question.take(response)
        prediction = question.prediction()
        yield _progress(prediction.value)
        _ended(prediction)

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
        arguments = _arguments(output_cls, llm_kwargs)
        _started(output_cls, prompt, prompt_args)
        partials = _Partials(output_cls)
        question = _Question(output_cls, self._request(prompt, prompt_args))
        responses = await self.astream_chat(question.messages, **arguments)
        try:
            async for response in responses:
                grown = partials.grown(response)
                if grown is not None:
                    yield _progress(grown)
        finally:
            await responses.aclose()
        question.take(response)
        prediction = question.prediction()
        yield _progress(prediction.value)
        _ended(prediction)

    def _for_programs(self) -> LLM:
        """This object as the core's programs take it: the one for OPENAI takes OpenAI's class alone."""
        if self.pydantic_program_mode != PydanticProgramMode.OPENAI:
            return self
        return self.model_copy(update={"pydantic_program_mode": PydanticProgramMode.FUNCTION})

    def _request(self, prompt: BasePromptTemplate, prompt_args: dict[str, Any]) -> list[ChatMessage]:
        return self._extend_messages(prompt.format_messages(llm=self, **prompt_args))


class _Question(Generic[Model]):
    """A request for an object, with the answers to it; `messages` are what to ask next."""

    def __init__(self, output_cls: type[Model], messages: list[ChatMessage], retries: int = 0) -> None:
        self.messages = messages
        self._tries: Tries[Model] = Tries(partial(check, output_cls), retries)
        self._usage: Counter[str] = Counter()
        self._raw: dict[str, Any] = {}

    def take(self, response: ChatResponse) -> None:
        """Judge a whole answer."""
        assert isinstance(response.raw, dict)
        self._raw = response.raw
        self._usage.update(response.raw["usage"])
        text = response.message.content or ""
        self._tries.take(text, cut=response.raw["finish_reason"] == "length")
        if self.again:
            said = ((MessageRole.ASSISTANT, text), (MessageRole.USER, self._tries.complaint()))
            self.messages = [*self.messages, *(ChatMessage(role=role, content=content) for role, content in said)]

    @property
    def again(self) -> bool:
        return self._tries.again

    def prediction(self) -> Prediction[Model]:
        """What it came to; OutputInvalid where no answer fits."""
        return Prediction(self._tries.value(), self._tries.made, dict(self._usage), self._raw)


class _Partials:
    """The object as far as the streamed JSON text goes."""

    def __init__(self, output_cls: type[BaseModel]) -> None:
        self._flexible = create_flexible_model(output_cls)
        self._json = PartialJson()
        self._data: Any = None

    def grown(self, response: ChatResponse) -> FlexibleModel | None:
        """The partial object if this response adds to it."""
        self._json.feed(response.delta or "")
        try:
            data = self._json.value()
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


def _started(output_cls: type[BaseModel], prompt: BasePromptTemplate, prompt_args: dict[str, Any]) -> None:
    _dispatcher.event(LLMStructuredPredictStartEvent(output_cls=output_cls, template=prompt, template_args=prompt_args))


def _progress(partial: Any) -> Any:
    _dispatcher.event(LLMStructuredPredictInProgressEvent(output=partial))
    return partial


def _ended(prediction: Prediction[Model]) -> Prediction[Model]:
    _dispatcher.event(LLMStructuredPredictEndEvent(output=prediction.value))
    return prediction
