"""Answers of any LangChain chat model, asked by prompt alone."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from chatlocal.engine.partial_json import PartialJson
from chatlocal.engine.repair import Tries
from chatlocal.extractors.answering import Answered, Grown, check_wanted
from chatlocal.extractors.extraction_prompt import WorkedExample, conversation
from chatlocal.extractors.record_schema import RecordSchema
from chatlocal.extractors.written_answers import json_in

# Where a model cannot count without a network: bytes of UTF-8 for each token, on the safe side.
_BYTES_A_TOKEN = 3
_ROLES = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}


class PromptedAnswers:
    """The schema stands in the prompt; the answer is read out of what the model says, and validated."""

    def __init__(
        self,
        llm: BaseChatModel,
        schema: RecordSchema,
        *,
        instructions: str | None,
        examples: Sequence[WorkedExample],
    ) -> None:
        self._llm = llm
        self._schema = schema
        self._instructions = instructions
        self._examples = examples

    def answer(self, text: str, retries: int, *, grown: Grown | None = None, ended: Event | None = None) -> Answered:
        asked, tries, usage = self._messages(text), Tries(self._check, retries), _Usage()
        while True:
            check_wanted(ended)
            reply: Any = self._llm.invoke(asked) if grown is None else self._streamed(asked, grown, ended)
            asked = self._taken(asked, reply, tries, usage)
            if not tries.again:
                return Answered(tries, None, usage.counts)

    async def aanswer(self, text: str, retries: int) -> Answered:
        asked, tries, usage = self._messages(text), Tries(self._check, retries), _Usage()
        while True:
            asked = self._taken(asked, await self._llm.ainvoke(asked), tries, usage)
            if not tries.again:
                return Answered(tries, None, usage.counts)

    def count_tokens(self, text: str) -> int:
        """By the model's own count; where it has none at hand, the bytes of the text over 3."""
        try:
            return self._llm.get_num_tokens(text)
        except Exception:  # by default LangChain fetches GPT-2's tokenizer for this
            return len(text.encode()) // _BYTES_A_TOKEN + 1

    def _streamed(self, asked: list[BaseMessage], grown: Grown, ended: Event | None) -> Any:
        whole: Any = None
        growing = PartialJson()
        begun = False
        for chunk in self._llm.stream(asked):
            check_wanted(ended)
            whole = chunk if whole is None else whole + chunk
            piece = str(chunk.text)
            if not begun:
                starts = [place for place in (piece.find("{"), piece.find("[")) if place >= 0]
                begun, piece = bool(starts), piece[min(starts) :] if starts else ""
            growing.feed(piece)
            try:
                grown(growing.value())
            except ValueError:  # not begun, or over and followed by words
                continue
        return AIMessage("") if whole is None else whole

    def _taken(self, asked: list[BaseMessage], reply: Any, tries: Tries[Any], usage: _Usage) -> list[BaseMessage]:
        cut = getattr(reply, "response_metadata", {}).get("finish_reason") == "length"
        tries.take(str(reply.text), cut=cut)
        usage.add(getattr(reply, "usage_metadata", None) or {})
        return [*asked, AIMessage(str(reply.text)), HumanMessage(tries.complaint())] if tries.again else asked

    def _messages(self, text: str) -> list[BaseMessage]:
        turns = conversation(text, self._schema.answer, instructions=self._instructions, examples=self._examples)
        return [_ROLES[turn.role](turn.text) for turn in turns]

    def _check(self, answer: str) -> Any:
        return self._schema.check(json_in(answer))


class _Usage:
    """LangChain's counts, added up."""

    def __init__(self) -> None:
        self.counts = {"prompt_tokens": 0, "completion_tokens": 0}

    def add(self, used: Any) -> None:
        self.counts["prompt_tokens"] += used.get("input_tokens", 0)
        self.counts["completion_tokens"] += used.get("output_tokens", 0)
