"""`Extractor`: from a text to records of a class or JSON Schema, each value with the words it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.extractors.extraction_request import Answers, answers_of
from chatlocal.extractors.record_schema import read_record_schema
from chatlocal.extractors.results import Extraction, Failure, Record

# Requests at once where nobody says how many; an engine batches what runs at the same time.
_AT_ONCE = 8


class Extractor:
    """Extracts records from texts.

    `schema`: a Pydantic class, list[Model], a list or tuple of several classes, or a JSON Schema as a dict. `llm`: a
    ChatLocal, a LocalLLM or an Engine (held to the schema by a grammar, unless `constrain` is False), any other
    LangChain chat model (asked by prompt alone), None for the embedded model. `examples` are (text, answer) pairs, an
    answer being an instance, a dict or a list of these; `instructions` is what the model should mind besides.
    `grounded` fields are held to spans of the text. `min_confidence` sends values below it to review. `max_retries` is
    how often an answer that does not validate goes back to the model. `key` are the fields by which records of one
    document are the same record.
    """

    def __init__(
        self,
        schema: Any,
        llm: Any = None,
        *,
        examples: Iterable[tuple[str, Any]] = (),
        instructions: str | None = None,
        grounded: bool | Sequence[str] = False,
        min_confidence: float | None = None,
        max_retries: int = 1,
        constrain: bool = True,
        max_tokens: int | None = None,
        key: str | Sequence[str] | None = None,
    ) -> None:
        self.schema = read_record_schema(schema)
        self.llm = llm
        self.examples = tuple(examples)
        self.instructions = instructions
        self.grounded = grounded
        self.min_confidence = min_confidence
        self.max_retries = max_retries
        self.constrain = constrain
        self.max_tokens = max_tokens
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self._answers: Answers = answers_of(llm, self.schema, instructions, constrain=constrain, max_tokens=max_tokens)

    def extract(self, text: str, *, document: str | None = None) -> Extraction:
        """What the text holds. A model that gives nothing valid is no exception: `failures` says what went wrong."""
        if not isinstance(text, str):
            raise UnsupportedInput(f"extract takes a text, got {type(text).__name__}.")
        tries = self._answers.answer(text, self.max_retries)
        raw = tuple(one.answer for one in tries.made)
        try:
            answer = tries.value()
        except OutputInvalid as problem:
            failure = Failure(type(problem).__name__, str(problem), raw[-1], 0, len(text))
            return Extraction(None, None, failures=(failure,), raw=raw, document=document)
        records = tuple(
            Record(placed.data, placed.kind.build(placed.data), placed.kind.name, (), document, 0, len(text))
            for placed in self.schema.placed(answer)
        )
        data = self.schema.gathered([record.data for record in records])
        value = self.schema.gathered([record.value for record in records])
        return Extraction(data, value, records, raw=raw, document=document)

    async def aextract(self, text: str, *, document: str | None = None) -> Extraction:
        """`extract` without blocking the event loop."""
        return await asyncio.to_thread(self.extract, text, document=document)

    def stream(self, text: str, *, document: str | None = None) -> Iterator[Extraction]:
        """Extractions that grow; the last one is whole and is what `extract` gives."""
        yield self.extract(text, document=document)

    def batch(self, texts: Iterable[str], max_concurrency: int | None = None) -> list[Extraction]:
        """`extract` of each, in order; the engine runs them at once."""
        listed = list(texts)
        with ThreadPoolExecutor(max_concurrency or _AT_ONCE) as threads:
            return list(threads.map(self.extract, listed))

    async def abatch(self, texts: Iterable[str], max_concurrency: int | None = None) -> list[Extraction]:
        """`batch` without blocking the event loop."""
        limit = asyncio.Semaphore(max_concurrency or _AT_ONCE)

        async def one(text: str) -> Extraction:
            async with limit:
                return await self.aextract(text)

        return list(await asyncio.gather(*(one(text) for text in texts)))

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has for the model."""
        return self._answers.count_tokens(text)
