"""Answers whose values are chosen by likelihood among what the text offers (see choosing.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from threading import Event
from typing import Any

from chatlocal.engine import Engine
from chatlocal.engine.repair import Tries
from chatlocal.extractors.answering import Answered, Grown, check_wanted
from chatlocal.extractors.choosing import Filling
from chatlocal.extractors.extraction_prompt import WorkedExample
from chatlocal.extractors.likelihood import Likelihood
from chatlocal.extractors.record_schema import RecordSchema
from chatlocal.extractors.written_answers import WrittenAnswers


class ChosenAnswers:
    """What the schema or a class refuses goes on as a conversation in which the model writes."""

    def __init__(
        self,
        engine: Engine,
        schema: RecordSchema,
        demanded: dict[str, Any],
        written: WrittenAnswers,
        *,
        instructions: str | None,
        examples: Sequence[WorkedExample],
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._demanded = demanded
        self._written = written
        self._instructions = instructions
        self._examples = examples

    def answer(self, text: str, retries: int, *, grown: Grown | None = None, ended: Event | None = None) -> Answered:
        answered = self._chosen(text, grown, ended)
        if answered.tries.made[-1].error is None:
            return answered
        return _both(answered, self._written.answer(text, retries + 1, ended=ended, before=answered.tries))

    async def aanswer(self, text: str, retries: int) -> Answered:
        ended = Event()
        try:
            answered = await asyncio.to_thread(self._chosen, text, None, ended)
        finally:
            ended.set()
        if answered.tries.made[-1].error is None:
            return answered
        return _both(answered, await self._written.aanswer(text, retries + 1, before=answered.tries))

    def count_tokens(self, text: str) -> int:
        return self._written.count_tokens(text)

    def _chosen(self, text: str, grown: Grown | None, ended: Event | None) -> Answered:
        likelihood = Likelihood(self._engine, lambda: check_wanted(ended))
        filling = Filling(
            self._engine,
            self._demanded,
            text,
            likelihood,
            instructions=self._instructions,
            examples=self._examples,
            grown=grown,
        )
        value = filling.fill()
        tries: Tries[Any] = Tries(self._schema.check)
        tries.take(json.dumps(value, ensure_ascii=False))
        counts = {"prompt_tokens": likelihood.prompt_tokens, "completion_tokens": filling.written_tokens}
        return Answered(tries, filling.confidence, {**counts, "scored_tokens": likelihood.scored_tokens})


def _both(first: Answered, second: Answered) -> Answered:
    names = dict.fromkeys((*first.usage, *second.usage))
    usage = {name: first.usage.get(name, 0) + second.usage.get(name, 0) for name in names}
    return Answered(second.tries, second.confidence, usage)
