"""The engine: from messages to events, over a backend that turns ids into ids."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from chatlocal.engine import families, loading
from chatlocal.engine.answer import AnswerReader
from chatlocal.engine.call_arguments import refuse_unknown
from chatlocal.engine.constraints import Spec
from chatlocal.engine.context_length import context_length
from chatlocal.engine.errors import ContextOverflow, EngineClosed, UnsupportedInput
from chatlocal.engine.events import Event, Reply, collect
from chatlocal.engine.families import Prompt
from chatlocal.engine.generation_defaults import complete, end_ids
from chatlocal.engine.instructions import ask_for_json
from chatlocal.engine.messages import ChatMessage, Sampling, Tool, read_messages, read_tools
from chatlocal.engine.prompt_description import described_prompts
from chatlocal.engine.runtime.arrivals import arrivals, async_arrivals
from chatlocal.engine.runtime.backend import Backend, Request
from chatlocal.engine.tool_use import ToolUse
from chatlocal.engine.toolcalls.decision import DEFAULT_THRESHOLD, wanted_tools
from chatlocal.engine.toolcalls.tool_choice import read_tool_choice

Messages = Iterable[ChatMessage | Mapping[str, Any]]
Tools = Sequence[Tool | Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one call asks for; `deadline` is on the clock of time.monotonic."""

    messages: Messages | Prompt
    tools: Tools | None
    tool_choice: Any
    parallel: bool | None
    spec: Spec | None
    sampling: Sampling | None
    options: Mapping[str, Any]
    deadline: float | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """`undecided` is the wish where it is to be decided yet whether the answer is a call."""

    request: Request
    reader: AnswerReader
    deadline: float | None
    undecided: _Wish | None = None


class Engine:
    """A model, its tokenizer and one scheduler thread. Safe to call from any number of threads and event loops.

    `Engine(model, tokenizer)` takes transformers objects that are already loaded (the model is used as it is and must
    not be used elsewhere at the same time); `Engine.load(...)` finds them by name. `backend` replaces the torch
    runtime; then `model` may be None. `template` is a prompt family's name, a Jinja template or a path to one.
    `tool_format` is a name of chatlocal.engine.toolcalls, where the model writes calls in another way than its prompt
    format says. `call_threshold` is for models that never begin a call by themselves: the score from which on one is
    demanded (chatlocal.engine.toolcalls.decision); higher means fewer calls.
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
        self._tool_use = ToolUse(self._choice.family, tokenizer, tool_format)
        self._call_threshold = DEFAULT_THRESHOLD if call_threshold is None else call_threshold
        if backend is None:
            # Imported here so that an engine over another backend does without the torch runtime.
            from chatlocal.engine.runtime.torch_backend import TorchBackend

            backend = TorchBackend(model, tokenizer, max_batch=max_batch)
        self.backend: Backend = backend
        self._closed = False

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        template: str | os.PathLike[str] | None = None,
        max_batch: int = 16,
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
        sampling: Sampling | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Iterator[Event]:
        """The answer as it comes; the last event is Finish. Closing the iterator frees the slot within one step.

        In place of messages a Prompt may be given, which is not rendered (chatlocal.engine.written_prompt makes one).
        `tool_choice` says whether the model may or must call the tools (chatlocal.engine.toolcalls.tool_choice), and
        `parallel_tool_calls` whether it may make several calls at once; None is yes for models that know tools. A call
        that is demanded is well formed with any model. `spec` constrains the text of the answer, `timeout` is in
        seconds from this call, `options` go to the prompt family.
        Raises ContextOverflow, UnsupportedInput, TemplateError or UnsupportedSchema before any work.
        """
        wish = _Wish(messages, tools, tool_choice, parallel_tool_calls, spec, sampling, options, _deadline(timeout))
        return self._stream(self._prepare(wish))

    def _stream(self, prepared: _Prepared) -> Iterator[Event]:
        if prepared.undecided is not None:
            prepared = self._decide(prepared.undecided)
        incoming = arrivals(self.backend.submit(prepared.request), prepared.deadline)
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
        sampling: Sampling | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Event]:
        """`stream` for an event loop, which is never blocked; cancelling the task frees the slot within one step."""
        wish = _Wish(messages, tools, tool_choice, parallel_tool_calls, spec, sampling, options, _deadline(timeout))
        return self._astream(self._prepare(wish))

    async def _astream(self, prepared: _Prepared) -> AsyncIterator[Event]:
        if prepared.undecided is not None:
            prepared = await asyncio.to_thread(self._decide, prepared.undecided)
        await self._compile(prepared.request)
        incoming = async_arrivals(self.backend.submit(prepared.request), prepared.deadline)
        try:
            async for token_event in incoming:
                events = prepared.reader.feed(token_event)
                if prepared.reader.finished:
                    await incoming.aclose()
                for event in events:
                    yield event
        finally:
            await incoming.aclose()

    async def _compile(self, request: Request) -> None:
        """Compile the request's constraint in another thread: that may take a second, and then `submit` has it."""
        prepare = getattr(self.backend, "prepare", None)
        if request.constraint_spec is not None and prepare is not None:
            await asyncio.to_thread(prepare, request.constraint_spec, request.stop_ids)

    def generate(self, messages: Messages | Prompt, **options: Any) -> Reply:
        """The whole answer; arguments as in `stream`."""
        return collect(self.stream(messages, **options))

    async def agenerate(self, messages: Messages | Prompt, **options: Any) -> Reply:
        """The whole answer, without blocking the event loop; arguments as in `stream`."""
        return collect([event async for event in self.astream(messages, **options)])

    def render(self, messages: Messages | Prompt, tools: Tools | None = None, **options: Any) -> Prompt:
        """The prompt of these messages, in the family that was chosen for the model; a Prompt is one already."""
        if isinstance(messages, Prompt):
            if tools or options:
                raise UnsupportedInput("A Prompt is written already: tools and the family's options cannot change it.")
            return messages
        turns, shown = self._tool_use.conversation(messages, read_tools(tools))
        return self._choice.family.render(turns, shown or None, **options)

    def ask_for_json(self, messages: Messages, schema: Mapping[str, Any]) -> tuple[ChatMessage, ...]:
        """The messages with the request for an answer of this JSON Schema, worded for this model.

        Wording alone: pass a `spec` to `stream` to have the schema enforced. Models that were not trained for tools
        get worked examples where the prompt stays within half of the context.
        """
        if not self._tool_use.worded:
            return ask_for_json(messages, schema, trained=True)
        asked = ask_for_json(messages, schema)
        if self.context_length and self.count_tokens(asked, merge_system=True) > self.context_length // 2:
            return ask_for_json(messages, schema, examples=False)
        return asked

    def count_tokens(self, messages: Messages | Prompt, tools: Tools | None = None, **options: Any) -> int:
        """How many ids the prompt of these messages has."""
        return len(self.render(messages, tools, **options).ids(self.tokenizer))

    def describe(self) -> dict[str, Any]:
        """What was loaded and which rule chose the prompt family, for a person to read."""
        described: dict[str, Any] = {
            "model": self.name,
            **described_prompts(self._choice, self.tokenizer, self._generation_config),
            "tool_format": f"{self._tool_use.format.name}: {self._tool_use.why}",
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

    def _decide(self, wish: _Wish) -> _Prepared:
        """For a model that never begins a call by itself: demand one where it scores high enough, else ask for text."""
        assert not isinstance(wish.messages, Prompt)
        wanted = wanted_tools(
            read_messages(wish.messages),
            read_tools(wish.tools),
            family=self._choice.family,
            tokenizer=self.tokenizer,
            score=self.backend.score,
            threshold=self._call_threshold,
        )
        return self._prepare(replace(wish, tools=wanted, tool_choice="required" if wanted else "none"))

    def _prepare(self, wish: _Wish) -> _Prepared:
        if self._closed:
            raise EngineClosed("This engine was closed: load it again with Engine.load.")
        _check_kinds(wish.spec, wish.sampling)
        sampling = wish.sampling or Sampling()
        choice = read_tool_choice(wish.tool_choice, read_tools(wish.tools))
        prompt = self.render(wish.messages, choice.tools, **wish.options)
        ids = prompt.ids(self.tokenizer)
        if not ids:
            raise UnsupportedInput("The prompt is empty: there is nothing that the model could continue.")
        room = self.context_length - len(ids) if self.context_length else 2**31
        if room < 1:
            raise ContextOverflow(len(ids), self.context_length or 0)
        plan = self._tool_use.plan(prompt, choice, wish.parallel, wish.spec)
        ends = end_ids(self.tokenizer, self._generation_config, prompt.stop_ids(self.tokenizer))
        request = Request(
            prompt_ids=ids,
            sampling=complete(replace(sampling, stop=()), self._generation_config, room),
            stop_ids=ends,
            constraint_spec=plan.spec,
            logprobs=sampling.logprobs,
        )
        # A family's stop strings are guesses about prose; an answer in a form ends where its grammar says.
        turn_ends = () if wish.spec is not None else prompt.stop_texts(self.tokenizer)
        reader = AnswerReader(
            self.tokenizer,
            sampling.stop,
            len(ids),
            turn_ends=tuple(end for end in turn_ends if end not in plan.stops),
            parser=plan.parser,
            keep=plan.keep - ends,
        )
        undecided = choice.mode == "auto" and bool(choice.tools) and self._tool_use.worded
        return _Prepared(request, reader, wish.deadline, wish if undecided else None)


def _check_loaded(model: Any, tokenizer: Any) -> None:
    if not callable(model) or not hasattr(model, "config") or not hasattr(tokenizer, "decode"):
        raise UnsupportedInput(
            f"Engine takes a loaded transformers model and its tokenizer, got {type(model).__name__} and"
            f" {type(tokenizer).__name__}: for a name or a path use Engine.load."
        )


def _check_kinds(spec: Any, sampling: Any) -> None:
    if spec is not None and not isinstance(spec, Spec):
        raise UnsupportedInput(
            f"spec takes what chatlocal.engine.constraints makes, such as json_schema(...), got {spec!r:.80}."
        )
    if sampling is not None and not isinstance(sampling, Sampling):
        raise UnsupportedInput(f"sampling takes a Sampling, such as Sampling(temperature=0), got {sampling!r:.80}.")


def _deadline(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise UnsupportedInput(f"timeout must be a positive number of seconds, got {timeout!r}.")
    # Python waits for 292 years at most; infinity is no limit.
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout
