"""Answers that a model of ours writes as JSON, held to the schema by a grammar unless that is turned off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from threading import Event
from typing import Any

from chatlocal.engine import ChatMessage, Engine, Sampling, collect, constraints
from chatlocal.engine import Text as TextEvent
from chatlocal.engine.constraints import Spec
from chatlocal.engine.errors import BudgetTooSmall, ContextOverflow
from chatlocal.engine.events import Reply, Usage
from chatlocal.engine.families import Prompt, Text
from chatlocal.engine.partial_json import PartialJson
from chatlocal.engine.repair import Tries
from chatlocal.extractors.answering import Answered, Grown, check_wanted
from chatlocal.extractors.encoders.json import JSONEncoder
from chatlocal.extractors.extraction_prompt import WorkedExample, conversation
from chatlocal.extractors.grounded_fields import demands_spans
from chatlocal.extractors.record_schema import RecordSchema

# A conversation that has grown by what was wrong may have no room left: then the answer that was refused is the last.
NO_ROOM = (ContextOverflow, BudgetTooSmall)


class WrittenAnswers:
    """`demanded` is the schema with what grounded fields demand; `tries` that were made before go on here."""

    def __init__(
        self,
        engine: Engine,
        schema: RecordSchema,
        demanded: dict[str, Any],
        *,
        instructions: str | None,
        examples: Sequence[WorkedExample],
        constrain: bool,
        sampling: Sampling,
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._demanded = demanded
        self._instructions = instructions
        self._examples = examples
        self._constrain = constrain
        self._sampling = sampling

    def answer(
        self,
        text: str,
        retries: int,
        *,
        grown: Grown | None = None,
        ended: Event | None = None,
        before: Tries[Any] | None = None,
    ) -> Answered:
        asking = _Asking(self, text, retries, before)
        while asking.more:
            try:
                events = self._engine.stream(asking.turns, spec=asking.spec, sampling=self._sampling)
            except NO_ROOM:
                if not asking.tries.made:
                    raise
                break
            seen, growing = [], PartialJson()
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    check_wanted(ended)
                    seen.append(event)
                    if grown is not None and isinstance(event, TextEvent):
                        growing.feed(event.text)
                        _tell(growing, grown)
            asking.take(collect(seen))
        return asking.answered()

    async def aanswer(self, text: str, retries: int, before: Tries[Any] | None = None) -> Answered:
        asking = _Asking(self, text, retries, before)
        while asking.more:
            try:
                reply = await self._engine.agenerate(asking.turns, spec=asking.spec, sampling=self._sampling)
            except NO_ROOM:
                if not asking.tries.made:
                    raise
                break
            asking.take(reply)
        return asking.answered()

    def count_tokens(self, text: str) -> int:
        return len(Prompt((Text(text),)).ids(self._engine.tokenizer))

    def spec(self, text: str) -> Spec | None:
        """The grammar of an answer to this text."""
        if not self._constrain:
            return None
        return constraints.json_schema(self._demanded, text=text if demands_spans(self._demanded) else None)

    def turns(self, text: str) -> tuple[ChatMessage, ...]:
        """The conversation that asks for it."""
        return conversation(
            text,
            self._schema.answer,
            instructions=self._instructions,
            examples=self._examples,
            trained=self._engine.trained_for_tools,
        )

    def check(self, answer: str) -> Any:
        """The value of an answer. What no grammar held may have words around the JSON."""
        return self._schema.check(answer if self._constrain else json_in(answer))


class _Asking:
    """The conversation about one text: the next question, until there is nothing more to ask."""

    def __init__(self, answers: WrittenAnswers, text: str, retries: int, before: Tries[Any] | None) -> None:
        self.turns: tuple[ChatMessage, ...] = answers.turns(text)
        self.spec = answers.spec(text)
        self.tries: Tries[Any] = Tries(answers.check, retries, before.made if before else ())
        self._confidence: dict[str, float] | None = None
        self._usage = Usage(0, 0)
        self.more = True
        if before is not None:
            self._complain(before)

    def take(self, reply: Reply) -> None:
        self.tries.take(reply.message.text, cut=reply.finish.reason == "length")
        sure, used = reply.finish.confidence, reply.finish.usage
        self._confidence = None if sure is None else dict(sure)
        total = self._usage
        self._usage = Usage(total.prompt + used.prompt, total.completion + used.completion, total.cached + used.cached)
        self.more = self.tries.again
        if self.more:
            self._complain(self.tries)

    def _complain(self, tries: Tries[Any]) -> None:
        wrong = ChatMessage("assistant", tries.made[-1].answer)
        self.turns = (*self.turns, wrong, ChatMessage("user", tries.complaint()))

    def answered(self) -> Answered:
        usage = self._usage
        counts = {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion, "cached_tokens": usage.cached}
        return Answered(self.tries, self._confidence, counts)


def json_in(answer: str) -> str:
    """The JSON of an answer that may have words around it. OutputInvalid where there is none."""
    return json.dumps(JSONEncoder().decode(answer), ensure_ascii=False)


def _tell(growing: PartialJson, grown: Grown) -> None:
    try:
        value = growing.value()
    except ValueError:  # nothing of it is there yet
        return
    grown(value)
