"""`Extractor`: from a text to records of a class or JSON Schema, each value with the words it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.extractors.annotation import annotate
from chatlocal.extractors.answering import Abandoned, Answered
from chatlocal.extractors.extraction_prompt import read_examples
from chatlocal.extractors.extraction_request import Method, answering_of
from chatlocal.extractors.grounding import Aligner
from chatlocal.extractors.record_schema import Placed, read_record_schema
from chatlocal.extractors.results import Extraction, Failure, Record

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from chatlocal.extractors.extractor_transform import ExtractorTransform

# Texts at once where nobody says how many; an engine batches what runs at the same time.
_AT_ONCE = 8


class Extractor:
    """Extracts records from texts. Safe to use from any number of threads.

    `schema`: a Pydantic class, list[Model], a list or tuple of several classes, or a JSON Schema as a dict. `llm`: a
    ChatLocal, a LocalLLM or an Engine (held to the schema by a grammar, unless `constrain` is False), any other
    LangChain chat model (asked by prompt alone), None for the embedded model. `examples` are (text, answer) pairs, an
    answer being an instance, a dict or a list of these; `instructions` is what the model should mind besides.
    `grounded` fields (True: all) are held to spans of the text, in the grammar. `min_confidence` sends values below it
    to review. `max_retries` is how often an answer that does not validate goes back to the model with the reason.
    `method` is how a model of ours answers: it may "write" JSON under the grammar, or have each value "choose"n by
    likelihood among what the text offers; None writes with models that were trained for tools, and chooses with others.
    `max_tokens` is the limit of a written answer. `key` names the fields by which records of one document are the same.
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
        method: Method | None = None,
        max_tokens: int | None = None,
        key: str | Sequence[str] | None = None,
    ) -> None:
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise UnsupportedInput(f"max_retries is how often to ask again, at least 0, got {max_retries!r}.")
        self.schema = read_record_schema(schema)
        self.llm = llm
        self.examples = tuple(examples)
        self.instructions = instructions
        self.grounded = grounded
        self.min_confidence = min_confidence
        self.max_retries = max_retries
        self.constrain = constrain
        self.method = method
        self.max_tokens = max_tokens
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self._answering = answering_of(
            llm,
            self.schema,
            instructions=instructions,
            examples=read_examples(self.examples, self.schema),
            grounded=grounded,
            constrain=constrain,
            method=method,
            max_tokens=max_tokens,
        )

    def extract(self, text: str, *, document: str | None = None) -> Extraction:
        """What the text holds. A model that gives nothing valid is no exception: `failures` says what went wrong."""
        return self._extraction(self._answering.answer(_text(text), self.max_retries), text, document)

    async def aextract(self, text: str, *, document: str | None = None) -> Extraction:
        """`extract` without blocking the event loop; cancelling the task ends the work."""
        return self._extraction(await self._answering.aanswer(_text(text), self.max_retries), text, document)

    def stream(self, text: str, *, document: str | None = None) -> Iterator[Extraction]:
        """Extractions that grow, and at the end the whole one, as `extract` gives it.

        Those before the last have `data` as far as it is there, and neither value nor records. Closing the iterator
        ends the work.
        """
        news: SimpleQueue[Any] = SimpleQueue()
        ended = Event()

        def work() -> None:
            try:
                news.put(self._answering.answer(text, self.max_retries, grown=news.put, ended=ended))
            except Abandoned:
                return
            except BaseException as problem:
                news.put(problem)

        _text(text)
        Thread(target=work, name="chatlocal-extractor", daemon=True).start()
        last: Any = None
        try:
            while not isinstance(new := news.get(), (Answered, BaseException)):
                if new != last:
                    last = new
                    yield Extraction(self.schema.shown(new), None, document=document)
        finally:
            ended.set()
        if isinstance(new, BaseException):
            raise new
        yield self._extraction(new, text, document)

    def batch(self, texts: Iterable[str], max_concurrency: int | None = None) -> list[Extraction]:
        """`extract` of each, in order; the engine runs them at once."""
        with ThreadPoolExecutor(max_concurrency or _AT_ONCE) as threads:
            return list(threads.map(self.extract, list(texts)))

    async def abatch(self, texts: Iterable[str], max_concurrency: int | None = None) -> list[Extraction]:
        """`batch` without blocking the event loop."""
        limit = asyncio.Semaphore(max_concurrency or _AT_ONCE)

        async def one(text: str) -> Extraction:
            async with limit:
                return await self.aextract(text)

        return list(await asyncio.gather(*(one(text) for text in texts)))

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has for the model."""
        return self._answering.count_tokens(text)

    def runnable(self) -> Runnable[Any, Extraction]:
        """A LangChain Runnable: it takes a text, a Document, a prompt's value, a message, or a dict with a "text"."""
        from chatlocal.extractors.extractor_runnable import ExtractorRunnable

        return ExtractorRunnable(extractor=self)

    def __call__(self, given: Any) -> Extraction:
        """What `runnable()` makes of this input. So `prompt | extractor` is a chain."""
        found: Extraction = self.runnable().invoke(given)
        return found

    def __or__(self, other: Any) -> Runnable[Any, Any]:
        """`extractor | what comes next`."""
        chain: Runnable[Any, Any] = self.runnable() | other
        return chain

    def transform(self, metadata_key: str = "records") -> ExtractorTransform:
        """A LlamaIndex transformation: puts the records of each node into its metadata under this key."""
        from chatlocal.extractors.extractor_transform import extractor_transform

        return extractor_transform(self, metadata_key)

    def _extraction(self, answered: Answered, text: str, document: str | None) -> Extraction:
        tries = answered.tries
        raw = tuple(one.answer for one in tries.made)
        try:
            answer = tries.value()
        except OutputInvalid as problem:
            failure = Failure(type(problem).__name__, str(problem), raw[-1], 0, len(text))
            return Extraction(None, None, (), (failure,), raw, document, answered.usage)
        aligner = Aligner(text)
        records = tuple(
            self._record(placed, answered, text, aligner, document) for placed in self.schema.placed(answer)
        )
        data = self.schema.gathered([record.data for record in records])
        value = self.schema.gathered([record.value for record in records])
        return Extraction(data, value, records, (), raw, document, answered.usage)

    def _record(self, placed: Placed, answered: Answered, text: str, aligner: Aligner, document: str | None) -> Record:
        sure = answered.confidence
        confidence = None if sure is None else _below(sure, placed.pointer)
        data, fields = annotate(
            placed.data,
            placed.kind.schema,
            text,
            examples=self.examples,
            confidence=confidence,
            min_confidence=self.min_confidence,
            aligner=aligner,
        )
        spans = [field.span for field in fields if field.span is not None]
        start = min((span.start for span in spans), default=0)
        end = max((span.end for span in spans), default=len(text))
        return Record(data, placed.kind.build(data), placed.kind.name, fields, document, start, end)


def _below(confidence: Any, pointer: str) -> dict[str, float]:
    """The confidence of what is in the value at a pointer, by pointers into that value."""
    return {
        key.removeprefix(pointer): value
        for key, value in confidence.items()
        if key == pointer or key.startswith(f"{pointer}/")
    }


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise UnsupportedInput(f"A text is extracted from, got {type(text).__name__}.")
    return text
