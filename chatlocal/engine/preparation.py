"""From what a call asks for to a request for the backend and a reader for what comes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chatlocal.engine.answer import AnswerReader
from chatlocal.engine.call_decision import DEFAULT_THRESHOLD, best_tool, wanted_tools
from chatlocal.engine.constraints import Limits, Spec
from chatlocal.engine.constraints.keywords import shown
from chatlocal.engine.errors import ContextOverflow, UnsupportedInput
from chatlocal.engine.families import Family, Prompt
from chatlocal.engine.generation_defaults import complete, end_ids
from chatlocal.engine.instructions import ask_for_json
from chatlocal.engine.messages import ChatMessage, Sampling, Tool, read_messages, read_tools
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.tool_use import ToolUse
from chatlocal.engine.toolcalls.tool_choice import read_tool_choice

Messages = Iterable[ChatMessage | Mapping[str, Any]]
Tools = Sequence[Tool | Mapping[str, Any]]
Score = Callable[[Sequence[int], Sequence[Sequence[int]]], list[float]]


@dataclass(frozen=True, slots=True)
class ToolWish:
    """What one call says of tools, as Engine.stream takes it."""

    tools: Tools | None
    choice: Any
    parallel: bool | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What one call asks for; `deadline` is on the clock of time.monotonic."""

    messages: Messages | Prompt
    tools: ToolWish
    spec: Spec | None
    answer_schema: Mapping[str, Any] | None
    sampling: Sampling | None
    options: Mapping[str, Any]
    deadline: float | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """`undecided` is the wish where it is to be decided yet whether the answer is a call.

    `otherwise` is the wish to turn to where a call that was decided on has no room.
    """

    request: Request
    reader: AnswerReader
    deadline: float | None
    undecided: Wish | None = None
    otherwise: Wish | None = None


class Preparation:
    """What an engine knows of its model without running it. `context_length` counts ids, None where it is not known."""

    def __init__(
        self,
        family: Family,
        tokenizer: Any,
        *,
        generation_config: Any,
        context_length: int | None,
        tool_format: str | None,
        call_threshold: float | None,
    ) -> None:
        self.tool_use = ToolUse(family, tokenizer, tool_format)
        self._family = family
        self._tokenizer = tokenizer
        self._generation_config = generation_config
        self._context_length = context_length
        self._threshold = DEFAULT_THRESHOLD if call_threshold is None else call_threshold

    def render(
        self,
        messages: Messages | Prompt,
        tools: Sequence[Tool],
        options: Mapping[str, Any],
        answer_schema: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt of these messages; a Prompt is one already. UnsupportedInput, TemplateError."""
        if isinstance(messages, Prompt):
            if tools or options:
                raise UnsupportedInput("A Prompt is written already: tools and the family's options cannot change it.")
            return messages
        turns = read_messages(messages)
        prompt = self._rendered(turns, tools, options, answer_schema, examples=True)
        if tools and self.tool_use.worded and self._is_long(prompt):
            return self._rendered(turns, tools, options, answer_schema, examples=False)
        return prompt

    def _rendered(
        self,
        turns: tuple[ChatMessage, ...],
        tools: Sequence[Tool],
        options: Mapping[str, Any],
        answer_schema: Mapping[str, Any] | None,
        *,
        examples: bool,
    ) -> Prompt:
        told = [replace(tool, parameters=shown(tool.parameters)) for tool in tools]
        turns, listed = self.tool_use.conversation(turns, told, examples=examples)
        if answer_schema is not None:
            turns = self.ask_for_json(turns, answer_schema)
        return self._family.render(turns, listed or None, **options)

    def _is_long(self, prompt: Prompt) -> bool:
        """Whether worked examples take too much of the context: it is more than half full."""
        return bool(self._context_length) and len(prompt.ids(self._tokenizer)) > (self._context_length or 0) // 2

    def ask_for_json(self, messages: Messages, schema: Mapping[str, Any]) -> tuple[ChatMessage, ...]:
        """See Engine.ask_for_json."""
        schema = shown(schema)
        if not self.tool_use.worded:
            return ask_for_json(messages, schema, trained=True)
        asked = ask_for_json(messages, schema)
        if self._is_long(self.render(asked, (), {"merge_system": True})):
            return ask_for_json(messages, schema, examples=False)
        return asked

    def prepared(self, wish: Wish) -> Prepared:
        """The request and its reader. ContextOverflow, UnsupportedInput, TemplateError or UnsupportedSchema."""
        _check_kinds(wish.spec, wish.sampling, wish.options)
        sampling = wish.sampling or Sampling()
        choice = read_tool_choice(wish.tools.choice, read_tools(wish.tools.tools))
        wanted = None if choice.mode == "required" else wish.answer_schema
        prompt = self.render(wish.messages, choice.tools, wish.options, wanted)
        ids = prompt.ids(self._tokenizer)
        if not ids:
            raise UnsupportedInput("The prompt is empty: there is nothing that the model could continue.")
        room = self._context_length - len(ids) if self._context_length else 2**31
        if room < 1:
            raise ContextOverflow(len(ids), self._context_length or 0)
        filled = complete(replace(sampling, stop=()), self._generation_config, room)
        plan = self.tool_use.plan(prompt, choice, wish.tools.parallel, _limited(wish.spec), filled)
        ends = end_ids(self._tokenizer, self._generation_config, prompt.stop_ids(self._tokenizer))
        request = Request(
            prompt_ids=ids,
            sampling=replace(filled, max_thinking_tokens=None),  # it is in the plan
            stop_ids=ends,
            constraint_spec=plan.spec,
            logprobs=sampling.logprobs,
        )
        # A family's stop strings are guesses about prose; an answer in a form ends where its grammar says.
        turn_ends = () if wish.spec is not None else prompt.stop_texts(self._tokenizer)
        reader = AnswerReader(
            self._tokenizer,
            sampling.stop,
            len(ids),
            turn_ends=tuple(end for end in turn_ends if end not in plan.stops),
            parser=plan.parser,
            keep=plan.keep - ends,
            spec=plan.spec,
        )
        # Left to the model, or with several tools to choose from: what it would not or not well do by itself.
        open_choice = len(choice.tools) > (0 if choice.mode == "auto" else 1)
        return Prepared(request, reader, wish.deadline, wish if open_choice and self.tool_use.worded else None)

    def decided(self, wish: Wish, score: Score) -> Prepared:
        """For a model that never begins a call by itself: demand one where it scores high enough, else ask for text.

        Of several tools the best one alone is shown and called. Blocks for the forward passes of the scores.
        """
        assert not isinstance(wish.messages, Prompt)
        choice = read_tool_choice(wish.tools.choice, read_tools(wish.tools.tools))
        turns = read_messages(wish.messages)
        known: Any = {"family": self._family, "tokenizer": self._tokenizer, "score": score}
        if choice.mode == "required":
            wanted: tuple[Tool, ...] = (best_tool(turns, choice.tools, **known),)
        else:
            wanted = wanted_tools(turns, choice.tools, threshold=self._threshold, **known)
        text = replace(wish, tools=ToolWish(None, None, None))
        if not wanted:
            return self.prepared(text)
        demanded = self.prepared(replace(wish, tools=replace(wish.tools, tools=wanted, choice="required")))
        return demanded if choice.mode == "required" else replace(demanded, otherwise=text)


def _limited(spec: Spec | None) -> Spec | None:
    """With the default limits, where it has none of its own: a small model may go on with a list for ever."""
    if spec is None or spec.kind != "json_schema" or spec.limits is not None:
        return spec
    return replace(spec, limits=Limits())


def deadline_of(timeout: float | None) -> float | None:
    """The end of so many seconds on the clock of time.monotonic. UnsupportedInput for what is no positive number."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise UnsupportedInput(f"timeout must be a positive number of seconds, got {timeout!r}.")
    # Python waits for 292 years at most; infinity is no limit.
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout


def _check_kinds(spec: Any, sampling: Any, options: Iterable[str]) -> None:
    of_sampling = [name for name in options if name in Sampling.__dataclass_fields__]
    if of_sampling:
        raise UnsupportedInput(
            f"{of_sampling[0]} is a part of the sampling: give sampling=Sampling({of_sampling[0]}=...), from"
            " chatlocal.engine."
        )
    if spec is not None and not isinstance(spec, Spec):
        raise UnsupportedInput(
            f"spec takes what chatlocal.engine.constraints makes, such as json_schema(...), got {spec!r:.80}."
        )
    if sampling is not None and not isinstance(sampling, Sampling):
        raise UnsupportedInput(f"sampling takes a Sampling, such as Sampling(temperature=0), got {sampling!r:.80}.")
