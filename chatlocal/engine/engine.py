"""The engine: from messages to events, over a backend that turns ids into ids."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NoReturn

from chatlocal.engine import families, loading
from chatlocal.engine.call_arguments import refuse_unknown
from chatlocal.engine.constraints import Spec
from chatlocal.engine.constraints.left_to_validation import left_to_validation
from chatlocal.engine.context_length import context_length
from chatlocal.engine.errors import BudgetTooSmall, EngineClosed, UnsupportedInput
from chatlocal.engine.events import Event, Reply, collect
from chatlocal.engine.families import Prompt
from chatlocal.engine.messages import ChatMessage, Sampling, read_tools
from chatlocal.engine.preparation import Messages as Messages
from chatlocal.engine.preparation import Preparation, Prepared, Tools, ToolWish, Wish, deadline_of
from chatlocal.engine.prompt_description import described_prompts
from chatlocal.engine.runtime.arrivals import arrivals, async_arrivals
from chatlocal.engine.runtime.backend import Backend, TokenEvent


class Engine:
    """A model, its tokenizer and one scheduler thread. Safe to call from any number of threads and event loops.

    `Engine(model, tokenizer)` takes transformers objects that are already loaded (the model is used as it is and must
    not be used elsewhere at the same time); `Engine.load(...)` finds them by name. `backend` replaces the torch
    runtime; then `model` may be None. `template` is a prompt family's name, a Jinja template or a path to one.
    `tool_format` is a name of chatlocal.engine.toolcalls, where the model writes calls in another way than its prompt
    format says. `call_threshold` is for models that never begin a call by themselves: the score from which on one is
    demanded (chatlocal.engine.call_decision); higher means fewer calls. `forced_text`: what a grammar forces is not
    chosen id by id, `selective_head`: where it allows few ids only their logits are computed, `fused_layers`: decoder
    layers of the common kind run in kernels of our own where these are faster, and `drafting`: ids that the prompt or
    the answer suggests are read along, where that pays; they are there to be turned off for comparison.
    `cache_tokens` is how many positions of prompts and answers the cache may have: a number, or a share of the memory
    that is free after loading (a float up to 1); where answers outgrow it requests take turns. `prefix_reuse`: what was
    read is held, and a prompt that begins like another one starts there. `max_waiting` is how many requests may wait
    for their turn; more are refused with EngineBusy.
    Closing frees the model's cache and ends the thread; it is also a context manager.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        backend: Backend | None = None,
        template: str | os.PathLike[str] | None = None,
        name: str | None = None,
        notes: tuple[str, ...] = (),
        max_batch: int = 16,
        forced_text: bool = True,
        selective_head: bool = True,
        fused_layers: bool = True,
        drafting: bool = True,
        cache_tokens: float | None = None,
        max_waiting: int | None = None,
        prefix_reuse: bool = True,
        tool_format: str | None = None,
        call_threshold: float | None = None,
    ) -> None:
        if backend is None:
            _check_loaded(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.name = name or str(getattr(getattr(model, "config", None), "_name_or_path", "") or "local model")
        self._notes = notes
        self._config = getattr(model, "config", None)
        self._generation_config = getattr(model, "generation_config", None)
        self.context_length = context_length(self._config, tokenizer)
        self._choice = families.resolve(tokenizer, self._config, template)
        self._preparation = Preparation(
            self._choice.family,
            tokenizer,
            generation_config=self._generation_config,
            context_length=self.context_length,
            tool_format=tool_format,
            call_threshold=call_threshold,
        )
        if backend is None:
            # Imported here so that an engine over another backend does without the torch runtime.
            from chatlocal.engine.runtime.torch_backend import TorchBackend

            backend = TorchBackend(
                model,
                tokenizer,
                max_batch=max_batch,
                forced_text=forced_text,
                selective_head=selective_head,
                fused_layers=fused_layers,
                drafting=drafting,
                cache_tokens=cache_tokens,
                max_waiting=max_waiting,
                prefix_reuse=prefix_reuse,
            )
        self.backend: Backend = backend
        self._closed = False

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        template: str | os.PathLike[str] | None = None,
        max_batch: int = 16,
        forced_text: bool = True,
        selective_head: bool = True,
        fused_layers: bool = True,
        drafting: bool = True,
        cache_tokens: float | None = None,
        max_waiting: int | None = None,
        prefix_reuse: bool = True,
        tool_format: str | None = None,
        call_threshold: float | None = None,
        **options: Any,
    ) -> Engine:
        """Load a folder, a hub id, a GGUF file or (no name) the embedded default; `options` as in loading.load.

        ModelNotFound, ModelLoadError or DownloadError say what to do when that fails.
        """
        refuse_unknown(options, inspect.signature(loading.load).parameters, "Engine.load")
        loaded = loading.load(model, **options)
        return cls(
            loaded.model,
            loaded.tokenizer,
            template=template,
            name=loaded.name,
            notes=loaded.notes,
            max_batch=max_batch,
            forced_text=forced_text,
            selective_head=selective_head,
            fused_layers=fused_layers,
            drafting=drafting,
            cache_tokens=cache_tokens,
            max_waiting=max_waiting,
            prefix_reuse=prefix_reuse,
            tool_format=tool_format,
            call_threshold=call_threshold,
        )

    def stream(
        self,
        messages: Messages | Prompt,
        *,
        tools: Tools | None = None,
        tool_choice: Any = None,
        parallel_tool_calls: bool | None = None,
        spec: Spec | None = None,
        answer_schema: Mapping[str, Any] | None = None,
        sampling: Sampling | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Iterator[Event]:
        """The answer as it comes; the last event is Finish. Closing the iterator frees the slot within one step.

        In place of messages a Prompt may be given, which is not rendered (chatlocal.engine.written_prompt makes one).
        `tool_choice` says whether the model may or must call the tools (chatlocal.engine.toolcalls.tool_choice), and
        `parallel_tool_calls` whether it may make several calls at once; None is yes for models that know tools. A call
        that is demanded is well formed with any model. `spec` constrains the text of the answer, `answer_schema` is a
        JSON Schema to ask for in words (see `ask_for_json`) unless a call is demanded, `timeout` is in seconds from
        this call, `options` go to the prompt family.
        Raises ContextOverflow, UnsupportedInput, TemplateError, UnsupportedSchema or BudgetTooSmall before any answer
        is begun.
        """
        asked = ToolWish(tools, tool_choice, parallel_tool_calls)
        wish = Wish(messages, asked, spec, answer_schema, sampling, options, deadline_of(timeout))
        return self._stream(self._prepared(wish))

    def _stream(self, prepared: Prepared) -> Iterator[Event]:
        if prepared.undecided is not None:
            prepared = self._preparation.decided(prepared.undecided, self.backend.score)
        prepared, stream = self._submitted(prepared)
        incoming = arrivals(stream, prepared.deadline)
        try:
            for token_event in incoming:
                events = prepared.reader.feed(token_event)
                if prepared.reader.finished:
                    incoming.close()  # before Finish goes out: its reader may never come back
                yield from events
        finally:
            incoming.close()

    def astream(
        self,
        messages: Messages | Prompt,
        *,
        tools: Tools | None = None,
        tool_choice: Any = None,
        parallel_tool_calls: bool | None = None,
        spec: Spec | None = None,
        answer_schema: Mapping[str, Any] | None = None,
        sampling: Sampling | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Event]:
        """`stream` for an event loop, which is never blocked; cancelling the task frees the slot within one step."""
        asked = ToolWish(tools, tool_choice, parallel_tool_calls)
        wish = Wish(messages, asked, spec, answer_schema, sampling, options, deadline_of(timeout))
        return self._astream(self._prepared(wish))

    async def _astream(self, prepared: Prepared) -> AsyncIterator[Event]:
        if prepared.undecided is not None:
            prepared = await asyncio.to_thread(self._preparation.decided, prepared.undecided, self.backend.score)
        prepared, stream = await self._asubmitted(prepared)
        incoming = async_arrivals(stream, prepared.deadline)
        try:
            async for token_event in incoming:
                events = prepared.reader.feed(token_event)
                if prepared.reader.finished:
                    await incoming.aclose()
                for event in events:
                    yield event
        finally:
            await incoming.aclose()

    def _submitted(self, prepared: Prepared) -> tuple[Prepared, Iterator[TokenEvent]]:
        """What was submitted, with its ids: text where a call was wanted and not demanded, and has no room."""
        try:
            return prepared, self.backend.submit(prepared.request)
        except BudgetTooSmall:
            if prepared.otherwise is None:
                raise
            prepared = self._preparation.prepared(prepared.otherwise)
            return prepared, self.backend.submit(prepared.request)

    async def _asubmitted(self, prepared: Prepared) -> tuple[Prepared, Iterator[TokenEvent]]:
        """The same without blocking the event loop: compiling a constraint may take a second."""
        if prepared.request.constraint_spec is None:
            return self._submitted(prepared)
        await asyncio.to_thread(left_to_validation, prepared.request.constraint_spec)  # the reader has it then
        submitting = asyncio.ensure_future(asyncio.to_thread(self._submitted, prepared))
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_close_submitted)
            raise

    def generate(self, messages: Messages | Prompt, **options: Any) -> Reply:
        """The whole answer; arguments as in `stream`."""
        return collect(self.stream(messages, **options))

    async def agenerate(self, messages: Messages | Prompt, **options: Any) -> Reply:
        """The whole answer, without blocking the event loop; arguments as in `stream`."""
        return collect([event async for event in self.astream(messages, **options)])

    def render(self, messages: Messages | Prompt, tools: Tools | None = None, **options: Any) -> Prompt:
        """The prompt of these messages, in the family that was chosen for the model; a Prompt is one already."""
        return self._preparation.render(messages, read_tools(tools), options)

    def _prepared(self, wish: Wish) -> Prepared:
        if self._closed:
            raise EngineClosed("This engine was closed: load it again with Engine.load.")
        return self._preparation.prepared(wish)

    def ask_for_json(self, messages: Messages, schema: Mapping[str, Any]) -> tuple[ChatMessage, ...]:
        """The messages with the request for an answer of this JSON Schema, worded for this model.

        Wording alone: pass a `spec` to `stream` to have the schema enforced. Models that were not trained for tools
        get worked examples where the prompt stays within half of the context.
        """
        return self._preparation.ask_for_json(messages, schema)

    @property
    def trained_for_tools(self) -> bool:
        """Whether the prompt format shows tools to the model: such a model knows JSON Schema, others get words."""
        return not self._preparation.tool_use.worded

    def count_tokens(self, messages: Messages | Prompt, tools: Tools | None = None, **options: Any) -> int:
        """How many ids the prompt of these messages has."""
        return len(self.render(messages, tools, **options).ids(self.tokenizer))

    def describe(self) -> dict[str, Any]:
        """What was loaded and which rule chose the prompt family, for a person to read."""
        described: dict[str, Any] = {
            "model": self.name,
            **described_prompts(self._choice, self.tokenizer, self._generation_config),
            "tool_format": f"{self._preparation.tool_use.format.name}: {self._preparation.tool_use.why}",
            "context_length": self.context_length,
            "notes": list(self._notes),
        }
        describe = getattr(self.backend, "describe", None)
        return {**described, **(describe() if describe is not None else {})}

    def stats(self) -> dict[str, int]:
        """Counters since loading (forwards, tokens_out, ...) and the requests that run and wait now."""
        stats = getattr(self.backend, "stats", None)
        return dict(stats()) if stats is not None else {}

    @property
    def closed(self) -> bool:
        """Whether it takes no more calls: `close` was called, or its thread died."""
        return self._closed or bool(getattr(self.backend, "closed", False))

    def close(self) -> None:
        """End every running request with EngineClosed and stop the scheduler thread. Safe to call twice."""
        self._closed = True
        close = getattr(self.backend, "close", None)
        if close is not None:
            close()

    def __reduce__(self) -> NoReturn:
        raise UnsupportedInput(
            "An engine cannot be pickled: it holds a loaded model and its thread. Load it in the other process; the"
            " settings of ChatLocal and LocalLLM can be pickled as long as they have no engine yet."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self  # frameworks copy their settings; the model and its thread are shared

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _close_submitted(submitting: asyncio.Future[tuple[Prepared, Iterator[TokenEvent]]]) -> None:
    """Nobody waits for it any more."""
    if not submitting.cancelled() and submitting.exception() is None:
        close = getattr(submitting.result()[1], "close", None)
        if close is not None:
            close()


def _check_loaded(model: Any, tokenizer: Any) -> None:
    if not callable(model) or not hasattr(model, "config") or not hasattr(tokenizer, "decode"):
        raise UnsupportedInput(
            f"Engine takes a loaded transformers model and its tokenizer, got {type(model).__name__} and"
            f" {type(tokenizer).__name__}: for a name or a path use Engine.load."
        )
