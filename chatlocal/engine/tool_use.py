"""How one model is told of tools, what its answer may be, and how its calls and its thinking are read."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from chatlocal.engine import toolcalls
from chatlocal.engine.constraints import Spec, either, free_text, thinking
from chatlocal.engine.constraints.vocabulary import read_vocabulary
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families import Family, Prompt
from chatlocal.engine.messages import ChatMessage, Sampling, Tool, read_messages
from chatlocal.engine.tool_instructions import FORMAT, with_tools
from chatlocal.engine.toolcalls import CallParser, ToolFormat
from chatlocal.engine.toolcalls.call_grammar import CallGrammar
from chatlocal.engine.toolcalls.no_calls import NoCalls
from chatlocal.engine.toolcalls.thinking import Marks
from chatlocal.engine.toolcalls.tool_choice import ToolChoice

_THINKING: tuple[Marks, ...] = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """What an answer may be and how it is read.

    `parser` is None where the answer is plain text. `stops` are the texts that the parser looks out for itself, `keep`
    the control tokens that it has to see.
    """

    spec: Spec | None
    parser: CallParser | None = None
    stops: tuple[str, ...] = ()
    keep: frozenset[int] = frozenset()


class ToolUse:
    """The way of one model with tools. `format` is how its calls are written, `why` says how that is known.

    `worded`: the model's prompt format knows no tools, or writes calls in a way that is not known here; then we
    describe the tools in our own words. `wanted` names a format instead of what the family says. UnsupportedInput for a
    name that is none, and for a format that the model cannot be told of.
    """

    def __init__(self, family: Family, tokenizer: Any, wanted: str | None = None) -> None:
        self._tokenizer = tokenizer
        self.format, self.why = _format(family, wanted)
        self.worded = self.format.name == FORMAT

    def conversation(
        self, messages: Iterable[ChatMessage | Mapping[str, Any]], tools: Sequence[Tool], *, examples: bool = True
    ) -> tuple[tuple[ChatMessage, ...], Sequence[Tool]]:
        """The messages and tools to render; `examples` are those of models that are told of tools in words."""
        turns = read_messages(messages)
        if self.worded and (tools or any(turn.role == "tool" or turn.tool_calls for turn in turns)):
            return with_tools(turns, tools, examples=examples), ()
        return turns, tools

    def plan(
        self, prompt: Prompt, choice: ToolChoice, parallel: bool | None, spec: Spec | None, sampling: Sampling
    ) -> AnswerPlan:
        """The plan for an answer to this prompt. `spec` is what an answer that is not a call must be.

        `parallel`: an answer may have several calls; None allows them to models that know tools. Of `sampling` the
        limits count: `max_tokens`, which is to be set, and `max_thinking_tokens`.
        """
        called = bool(choice.tools)
        if called:
            grammar = CallGrammar(
                parallel=not self.worded if parallel is None else parallel,
                opened=prompt.opened,
                marks=frozenset(self._names),
            )
            spec = self._calls(grammar, choice, spec)
        marks = self._thinking(prompt)
        if marks is not None and not _is_closed(prompt, marks):
            spec = self._behind_thinking(spec, marks, _is_open(prompt, marks), sampling)
        if not called and marks is None:
            return AnswerPlan(spec)
        format = self.format if called else NoCalls((marks,) if marks else ())
        parser = format.parser(choice.tools, prompt.opened, secrets.token_hex(8))
        seen = (*format.marks, *(mark for pair in format.thinking for mark in pair))
        keep = frozenset(self._names[mark] for mark in seen if mark in self._names)
        return AnswerPlan(spec, parser, format.stops, keep)

    def _calls(self, grammar: CallGrammar, choice: ToolChoice, spec: Spec | None) -> Spec | None:
        for tool in choice.tools:
            self.format.named(tool)
        ways = self.format.ways(grammar, choice.tools)
        if choice.mode == "required":
            return grammar.demanded(ways)
        if spec is not None:
            return either(grammar.demanded(ways), spec)
        return free_text(*grammar.openings(ways))

    def _behind_thinking(self, spec: Spec | None, marks: Marks, open: bool, sampling: Sampling) -> Spec | None:
        limit = sampling.max_thinking_tokens
        if spec is None:
            return None if limit is None else thinking(free_text(), *marks, open=open, limit=limit)
        if limit is None:
            written = sum(self._length(mark) for mark in (marks[1:] if open else marks))
            limit = _rounded(max(0, (sampling.max_tokens or 0) // 2 - written))
        return thinking(spec, *marks, open=open, limit=limit)

    def _length(self, mark: str) -> int:
        """How many ids a mark has."""
        return 1 if mark in self._names else len(self._tokenizer.encode(mark, add_special_tokens=False))

    def _thinking(self, prompt: Prompt) -> Marks | None:
        """The marks of the model's thinking, None for a model that does not think before it answers."""
        known = (marks for marks in _THINKING if all(mark in self._names for mark in marks))
        return next((marks for marks in _THINKING if _is_open(prompt, marks)), next(known, None))

    @cached_property
    def _names(self) -> Mapping[str, int]:
        """The control tokens of the tokenizer with their ids."""
        try:
            return read_vocabulary(self._tokenizer).names
        except UnsupportedInput:  # a tokenizer whose tokens cannot be read: answers are text then
            return {}


def _format(family: Family, wanted: str | None) -> tuple[ToolFormat, str]:
    if wanted is not None and wanted not in toolcalls.names():
        raise UnsupportedInput(f"There is no tool-call format {wanted!r}: use one of {', '.join(toolcalls.names())}.")
    if wanted == FORMAT:
        return toolcalls.get(FORMAT), "it was asked for"
    if not family.renders_tools:
        if wanted is not None:
            raise UnsupportedInput(
                f"The prompt format {family.name} shows a model no tools, so it will not write calls as {wanted}: leave"
                f" tool_format out, and tools are described in words ({FORMAT!r})."
            )
        return toolcalls.get(FORMAT), "the prompt format has no place for tools, so they are described in words"
    if wanted is not None:
        return toolcalls.get(wanted), "it was asked for"
    if family.tool_format is None:
        return toolcalls.get(FORMAT), "how the template writes calls is not known, so tools are described in words"
    return toolcalls.get(family.tool_format), f"the prompt format {family.name} writes calls so"


def _rounded(count: int) -> int:
    """Down to one of few counts, about a sixteenth apart: a constraint is compiled for each limit."""
    step = 1 << max(0, count.bit_length() - 5)
    return count - count % step


def _is_open(prompt: Prompt, marks: Marks) -> bool:
    opening, closing = marks
    return opening in prompt.opened and closing not in prompt.opened.rpartition(opening)[2]


def _is_closed(prompt: Prompt, marks: Marks) -> bool:
    """Whether the prompt has the answer's thinking behind it."""
    return prompt.text.rstrip().endswith(marks[1])
