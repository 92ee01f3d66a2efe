"""`ChatLocal`: open chat models as a LangChain chat model, in this process."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import AliasChoices, ConfigDict, Field, SecretStr, field_validator
from typing_extensions import is_typeddict

from chatlocal.engine import embedded
from chatlocal.engine.call_arguments import family_options, refuse_unknown
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import ContextOverflow, UnsupportedInput
from chatlocal.engine.families import Prompt, Text
from chatlocal.engine.shared import shared_engine
from chatlocal.integrations.langchain_call import SAMPLING, Call, read_call
from chatlocal.integrations.langchain_messages import to_chat_messages
from chatlocal.integrations.langchain_repair import Repairing
from chatlocal.integrations.langchain_replies import PROVIDER, ChunkWriter, with_whole_calls
from chatlocal.integrations.langchain_schemas import as_call, as_format, read_schema
from chatlocal.integrations.langchain_structured import AnswerParser, RawAnswerParser
from chatlocal.integrations.langchain_tools import openai_tools, read_choice

# Loading options that any model takes, and those that belong to one model and are not carried over to another.
_MACHINE = (
    "device",
    "dtype",
    "token",
    "cache_dir",
    "attn_implementation",
    "quantization",
    "num_threads",
    "max_batch",
    "drafting",
    "cache_tokens",
    "max_waiting",
    "prefix_reuse",
)
_MODEL = ("revision", "adapter", "template", "tool_format", "call_threshold")


def _from_env(name: str) -> Callable[[], str | None]:
    """What an environment variable says; an empty one says nothing."""
    return lambda: os.environ.get(name) or None


# Tells engines apart that users made and that may share a name; used for cache keys within this process only.
_engine_keys: WeakKeyDictionary[Engine, str] = WeakKeyDictionary()


class PromptTooLong(ContextOverflow, ContextOverflowError):
    """ContextOverflow that can be caught as langchain_core's ContextOverflowError too."""


class ChatLocal(BaseChatModel):
    """A chat model that runs in this process.

    `model` is a folder, a hub id, a GGUF file, or nothing for the embedded default; it is loaded at the first call and
    shared with every object of the same settings. `engine` is an Engine that you already have, instead. What is None
    follows the model's generation_config, else greedy decoding. Every sampling field can be given with a call too, and
    so can `logprobs`, `top_logprobs`, `response_format`, `tools` with `tool_choice` and `parallel_tool_calls`, the
    older `functions` with `function_call`, and `model`; an unknown argument is an UnsupportedInput.

    Calls are in the answer's `tool_calls`, and those that could not be read in its `invalid_tool_calls`. When chunks
    are added up, an invalid call has its arguments with an ending that nothing reads as JSON; the text as it was
    written and what is wrong with it stand in `response_metadata["invalid_tool_calls"]`. Thinking is in
    `additional_kwargs["reasoning_content"]`.

    The errors are those of chatlocal.engine.errors; a prompt that is too long is also a ContextOverflowError.
    """

    model: str | None = Field(
        default_factory=_from_env("CHATLOCAL_MODEL"),
        validation_alias=AliasChoices("model", "model_name"),
        kw_only=False,
    )
    temperature: float | None = None
    max_tokens: int | None = None
    """How many tokens an answer may have; None is what the model's generation_config says, else 1024."""
    max_thinking_tokens: int | None = None
    """How many of them a model may think before it answers, 0 for none; None leaves at least half of `max_tokens` to an
    answer that has a form (a schema, tools)."""
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: list[str] | None = Field(default=None, validation_alias=AliasChoices("stop", "stop_sequences"))
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Options of the prompt family or chat template, such as {"enable_thinking": False}."""
    timeout: float | None = None
    """Seconds that one call may take, GenerationTimeout after that."""
    max_retries: int = Field(default=0, ge=0)
    """How often with_structured_output's `invoke` shows the model an answer that does not validate, and asks again."""
    functions_required: bool = False
    """Whether `functions` without a `function_call` must be called, as chains of langchain-classic with more than one
    function expect. OpenAI's rule is that the model may answer in text as well."""
    streaming: bool | None = None
    """True streams inside `invoke` too, False makes `stream` give one chunk, None does as the method says."""

    device: str | None = Field(default_factory=_from_env("CHATLOCAL_DEVICE"))
    dtype: str | None = Field(default_factory=_from_env("CHATLOCAL_DTYPE"))
    revision: str | None = None
    token: SecretStr | None = None
    cache_dir: str | None = None
    adapter: str | None = None
    attn_implementation: str | None = None
    quantization: str | None = None
    """Keeps the weights in fewer bits, such as "torchao-int8" or "bitsandbytes-4bit": a name of
    chatlocal.engine.quantization."""
    num_threads: int | None = None
    template: str | None = Field(default_factory=_from_env("CHATLOCAL_TEMPLATE"))
    tool_format: str | None = None
    """How the model writes calls (chatlocal.engine.toolcalls), where its prompt format says something else."""
    call_threshold: float | None = None
    """For models that never begin a call by themselves: how sure a call must be to be made; higher means fewer."""
    max_batch: int | None = None
    drafting: bool | None = None
    """Whether likely ids are read along with the next one; None for where that pays, as True."""
    cache_tokens: int | float | None = None
    """Positions that the cache may have: a number, or a share of the free memory as a float up to 1."""
    max_waiting: int | None = None
    """Requests that may wait for their turn; more are refused with EngineBusy. None for any number."""
    prefix_reuse: bool | None = None
    """Whether a prompt starts from the longest beginning that it shares with what was read before; None as True."""
    given_engine: Engine | None = Field(default=None, alias="engine", exclude=True, repr=False)
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False)
    """Taken because code written for a server passes it; nothing here needs one."""

    model_config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)

    if not TYPE_CHECKING:  # type checkers derive a better signature from the fields

        def __init__(self, model: str | None = None, **settings: Any) -> None:
            if model is not None:
                if settings.get("model_name") is not None:
                    raise UnsupportedInput("model and model_name are one setting: give one of them.")
                settings["model"] = model
            refuse_unknown(settings, _known(type(self)), type(self).__name__)
            if settings.get("engine", settings.get("given_engine")) is not None:
                settings = _without_loading(settings)
            super().__init__(**settings)
            read_call(self._defaults(), None, {})  # values out of range are refused here, not in the first call

    @field_validator("model", "cache_dir", "adapter", "template", mode="before")
    @classmethod
    def _path_text(cls, value: Any) -> Any:
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    @field_validator("device", "dtype", mode="before")
    @classmethod
    def _torch_name(cls, value: Any) -> Any:
        """torch's own objects, by their names."""
        return value if value is None else str(value).removeprefix("torch.")

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    # the engine

    @property
    def engine(self) -> Engine:
        """The engine behind this model; loads it at the first use."""
        return self._engine_for(None)

    def _engine_for(self, model: str | None) -> Engine:
        """The engine of this model, or of another for one call."""
        given = self.given_engine
        if given is not None and model in (None, given.name):
            return given
        mine = model in (None, self._model_name())
        options = {name: getattr(self, name) for name in (*_MACHINE, *(_MODEL if mine else ()))}
        options["token"] = self.token and self.token.get_secret_value()
        chosen = {name: value for name, value in options.items() if value is not None}
        engine = shared_engine(self.model if mine else model, **chosen)
        if mine and engine.context_length and self.profile is not None and "max_input_tokens" not in self.profile:
            self.profile = {**self.profile, "max_input_tokens": engine.context_length}
        return engine

    async def _aengine_for(self, model: str | None) -> Engine:
        """The same without blocking the event loop while the model loads."""
        return await asyncio.get_running_loop().run_in_executor(None, self._engine_for, model)

    # answers

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return with_whole_calls(generate_from_stream(self._stream(messages, stop, **kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return with_whole_calls(await agenerate_from_stream(self._astream(messages, stop, **kwargs)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = read_call(self._defaults(), stop, kwargs)
        engine = self._engine_for(call.model)
        writer = self._writer(call)
        with _overflow_as_langchains(), closing(_start(engine.stream, messages, call)) as events:
            for event in events:
                chunk = writer.write(event)
                if run_manager is not None:
                    run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = read_call(self._defaults(), stop, kwargs)
        engine = await self._aengine_for(call.model)
        writer = self._writer(call)
        with _overflow_as_langchains():
            async with aclosing(_start(engine.astream, messages, call)) as events:
                async for event in events:
                    chunk = writer.write(event)
                    if run_manager is not None:
                        await run_manager.on_llm_new_token(str(chunk.text), chunk=chunk)
                    yield chunk

    def _defaults(self) -> dict[str, Any]:
        own = ("stop", "timeout", "chat_template_kwargs", "functions_required")
        return {name: getattr(self, name) for name in (*SAMPLING, *own)}

    def _writer(self, call: Call) -> ChunkWriter:
        return ChunkWriter(
            call.model or self._model_name(),
            call.function,
            legacy=call.tools.legacy,
            blocks=self.output_version == "v1",
        )

    # structured output

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        method: Literal["json_schema", "json_mode", "function_calling"] = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """The model, answering in the form of `schema`: a Pydantic class, a TypedDict, a JSON Schema or an OpenAI tool.

        The schema is enforced while the model writes, whatever `strict` says, and the answer is validated. json_mode
        is the same, and takes no schema too: then any JSON object, which the prompt should ask for. function_calling
        has the model call the schema as its one tool, whose name and description then count.

        An answer that does not validate (a validator of the class refuses it, say) goes back to the model with the
        reason, `max_retries` times at most and not where it was cut at max_tokens; then it is an OutputInvalid and an
        OutputParserException, whose `tries` are all the answers with what was wrong. With `include_raw` the error is
        the value of `parsing_error`, `raw` has the tries in `response_metadata["tries"]`, each a dict of `answer` and
        `error` (None for the one that fits), and its usage_metadata counts the tokens of all of them. What of the
        schema no grammar enforces, and validation alone sees to, stands in `response_metadata["left_to_validation"]`,
        and how probable the model found each value, by its JSON pointer, in `response_metadata["confidence"]`.

        Streaming gives growing partial values and no second try. Those of a class validate: there is none before its
        required fields are there, and none while the element that is being written to a list has not got its own.
        """
        if kwargs:
            settings = sorted(set(kwargs) & set(type(self).model_fields))
            hint = f" {settings[0]} is a setting of the model: ChatLocal({settings[0]}=...)." if settings else ""
            raise UnsupportedInput(f"with_structured_output does not take {', '.join(sorted(kwargs))}.{hint}")
        if method not in ("json_schema", "json_mode", "function_calling"):
            raise UnsupportedInput(f"method must be 'json_schema', 'json_mode' or 'function_calling', got {method!r}.")
        if schema is None and method != "json_mode":
            raise UnsupportedInput(f"method={method!r} needs a schema.")
        read = read_schema({"type": "object"} if schema is None else schema)
        # For traces: langchain_core makes its own JSON Schema of a class or dict, and knows no other types.
        shown = schema if isinstance(schema, (type, dict)) and not is_typeddict(schema) else read.json_schema
        called = method == "function_calling"
        bound = self.bind(
            **(as_call(read) if called else as_format(None if schema is None else read)),
            ls_structured_output_format={"kwargs": {"method": method}, "schema": shown},
        )
        parser = (RawAnswerParser if include_raw else AnswerParser)(answer_schema=read, call=called)
        if self.max_retries:
            return Repairing(bound=bound, parser=parser, repairs=self.max_retries)
        return bound | parser

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools that it may call: classes, functions, LangChain's tools, TypedDicts, or dicts.

        `tool_choice` is None or "auto" (the model decides), "any", "required" or True (it must call one of them), a
        tool's name, "none" or False, or OpenAI's dict of these. Arguments fit their schemas whatever `strict` says;
        with `strict` there are no others beside them. `parallel_tool_calls` allows several calls in one answer; None
        allows them to models that were trained for tools. Other arguments are those of a call, such as
        response_format, which is then the form of the answers that are no calls. Any number of tools is fine, none too.
        UnsupportedInput for what is no tool, and for a choice that names none of them.
        """
        shown = openai_tools(tools, strict)
        read_choice(tool_choice, shown)
        wish = {"tools": shown, "tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls, **kwargs}
        return self.bind(**{name: value for name, value in wish.items() if value is not None})

    # tokens

    def get_token_ids(self, text: str) -> list[int]:
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return list(Prompt((Text(text),)).ids(self.engine.tokenizer))

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """The tokens of the prompt that these messages make in the model's own format, 0 for none."""
        if not messages:
            return 0
        options = family_options(self.chat_template_kwargs, None)
        return self.engine.count_tokens(to_chat_messages(messages), openai_tools(tools or ()), **options)

    # what others ask about the model

    @property
    def _llm_type(self) -> str:
        return "chatlocal"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        own = (
            *("stop", "chat_template_kwargs", "functions_required"),
            *("device", "dtype", "attn_implementation", "quantization"),
        )
        return {"model": self._model_name(), **{name: getattr(self, name) for name in (*SAMPLING, *own, *_MODEL)}}

    def _model_name(self) -> str:
        if self.given_engine is not None:
            return self.given_engine.name
        return self.model or embedded.NAME

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        settings = {**self._defaults(), **kwargs}
        params = LangSmithParams(
            ls_provider=PROVIDER,
            ls_model_type="chat",
            ls_model_name=kwargs.get("model") or self._model_name(),
        )
        if settings["temperature"] is not None:
            params["ls_temperature"] = settings["temperature"]
        if settings["max_tokens"] is not None:
            params["ls_max_tokens"] = settings["max_tokens"]
        stop = settings["stop"] if stop is None else stop
        if stop:
            params["ls_stop"] = stop
        return params

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """The cache key. Two engines that users made may have one name, so each has a key of its own."""
        key = super()._get_llm_string(stop=stop, **kwargs)
        if self.given_engine is None:
            return key
        return f"{key}---{_engine_keys.setdefault(self.given_engine, uuid.uuid4().hex)}"

    def _resolve_model_profile(self) -> ModelProfile:
        """What is true of every model here; the context's length too where the model is loaded already."""
        known: ModelProfile = {
            "text_inputs": True,
            "text_outputs": True,
            "image_inputs": False,
            "image_url_inputs": False,
            "audio_inputs": False,
            "video_inputs": False,
            "pdf_inputs": False,
            "image_tool_message": False,
            "pdf_tool_message": False,
            "attachment": False,
            "image_outputs": False,
            "audio_outputs": False,
            "video_outputs": False,
            "structured_output": True,
            "tool_calling": True,
            "tool_choice": True,
            "tool_call_streaming": True,
            "temperature": True,
            "open_weights": True,
        }
        if self.given_engine is not None and self.given_engine.context_length:
            known["max_input_tokens"] = self.given_engine.context_length
        return known

    # serialization

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"token": "HF_TOKEN"}

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """An engine cannot be written down; its model's name can, so that loading finds it or says it is not there."""
        named = self.given_engine is not None and self.given_engine.name != embedded.NAME
        return {"model": self._model_name()} if named else {}


def _start(open_stream: Any, messages: list[BaseMessage], call: Call) -> Any:
    """Open the stream of events, sync or async."""
    return open_stream(
        to_chat_messages(messages),
        tools=call.tools.tools,
        tool_choice=call.tools.choice,
        parallel_tool_calls=call.tools.parallel,
        spec=call.spec,
        answer_schema=call.schema,
        sampling=call.sampling,
        timeout=call.timeout,
        **call.family,
    )


@contextmanager
def _overflow_as_langchains() -> Iterator[None]:
    """A prompt may turn out too long when the stream is opened, or when it was decided whether to call a tool."""
    try:
        yield
    except ContextOverflow as error:
        raise PromptTooLong(error.prompt_tokens, error.context_length) from error


def _known(model: type[ChatLocal]) -> set[str]:
    known = set(model.model_fields)
    for field in model.model_fields.values():
        alias = field.validation_alias
        known.update(str(name) for name in (alias.choices if isinstance(alias, AliasChoices) else [alias]) if name)
    return known


def _without_loading(settings: dict[str, Any]) -> dict[str, Any]:
    """A given engine is loaded already: settings for loading contradict it, and the environment's do not apply."""
    loading = ("model", "model_name", *_MACHINE, *_MODEL)
    given = [name for name in loading if settings.get(name) is not None]
    if given:
        raise UnsupportedInput(f"engine= is loaded already: leave out {', '.join(given)}.")
    return {**dict.fromkeys(("model", *_MACHINE, *_MODEL)), **{k: v for k, v in settings.items() if k not in loading}}
