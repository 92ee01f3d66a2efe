"""Reading structured answers: growing partial objects while they stream, a validated one at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.utils import AddableDict
from pydantic import ConfigDict

from chatlocal.engine.errors import OutputInvalid, Try
from chatlocal.engine.partial_json import PartialJson
from chatlocal.engine.repair import Tries, as_json
from chatlocal.integrations.langchain_calls import arguments_text
from chatlocal.integrations.langchain_schemas import Schema

Message = TypeVar("Message", bound=BaseMessage)

TRIES = "tries"
"""Where in the response_metadata of a structured answer all answers to its question stand, as dicts of Try."""


class StructuredOutputInvalid(OutputInvalid, OutputParserException):
    """OutputInvalid that can be caught as langchain_core's OutputParserException too; `raw` is also `llm_output`."""

    def __init__(self, message: str, raw: str, tries: tuple[Try, ...] = ()) -> None:
        super().__init__(message, raw, tries)
        self.args = (message,)  # without the link that langchain_core appends
        self.llm_output = raw


class AnswerParser(BaseTransformOutputParser[Any]):
    """Reads the JSON text of an answer, or of the arguments of a `call`, into what its schema describes.

    Streaming gives each partial value that validates and differs from the one before; the last one is the whole,
    validated answer. StructuredOutputInvalid when the whole answer does not fit.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    answer_schema: Schema
    call: bool = False

    @property
    def OutputType(self) -> Any:
        return Any

    def written(self, message: str | BaseMessage) -> str:
        """The JSON text in a message, or the piece of it in a chunk."""
        if self.call:
            return arguments_text(message)
        return message if isinstance(message, str) else str(message.text)

    def parse(self, text: str) -> Any:
        return self.parse_message(AIMessage(text))

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        first = result[0]
        return self.parse_message(first.message if isinstance(first, ChatGeneration) else AIMessage(first.text))

    def parse_message(self, message: BaseMessage) -> Any:
        """The value of a whole answer, which may have other tries in its metadata."""
        return _value(self.judged(message))

    def judged(self, message: BaseMessage, retries: int = 0) -> Tries[Any]:
        """The tries that stand in a message, and the message itself."""
        earlier = [Try(**each) for each in message.response_metadata.get(TRIES, ())]
        tries = Tries(self.answer_schema.check, retries, earlier)
        tries.take(self.written(message), cut=is_cut(message))
        return tries

    def transform(
        self, input: Iterator[str | BaseMessage], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Closing this ends the request. By itself langchain_core would first read the rest of the answer, to trace it;
        its async half does not."""
        chunks = _Closable(input)
        values = super().transform(chunks, config, **kwargs)  # a name keeps it open until the chunks are closed
        with closing(chunks):
            for value in values:  # noqa: UP028 - `yield from` would close the values first
                yield value

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        reader = _Growing(self)
        for chunk in input:
            yield from reader.feed(chunk)
        yield from reader.end()

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        reader = _Growing(self)
        async for chunk in input:
            for value in reader.feed(chunk):
                yield value
        for value in reader.end():
            yield value


class _Closable(Iterator[str | BaseMessage]):
    """Chunks that end when they are closed; closing closes what they come from."""

    def __init__(self, chunks: Iterator[str | BaseMessage]) -> None:
        self._chunks = chunks
        self._closed = False

    def __next__(self) -> str | BaseMessage:
        if self._closed:
            raise StopIteration
        return next(self._chunks)

    def close(self) -> None:
        self._closed = True
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()


class _Growing:
    """The values of an answer that comes in chunks."""

    _NOTHING = object()

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser
        self._json = PartialJson()
        self._cut = False
        self._last: Any = self._NOTHING

    def feed(self, chunk: str | BaseMessage) -> Iterator[Any]:
        self._cut = self._cut or is_cut(chunk)
        text = self._parser.written(chunk)
        if not text:
            return
        self._json.feed(text)
        try:
            value = self._parser.answer_schema.build(self._json.value())
        except ValueError:  # not enough of it yet
            return
        yield from self._changed(value)

    def end(self) -> Iterator[Any]:
        """The whole value, where it is another one than the last."""
        tries = Tries(self._parser.answer_schema.check)
        tries.take(self._json.text, cut=self._cut)
        yield from self._changed(_value(tries))

    def _changed(self, value: Any) -> Iterator[Any]:
        if self._last is self._NOTHING or value != self._last:
            self._last = value
            yield value


class RawAnswerParser(AnswerParser):
    """The same with the message beside it: a dict of `raw`, `parsed` and `parsing_error`; a wrong answer is not raised.

    The message has the tries in its metadata. Streaming gives dicts that can be added up: the raw chunks as they come,
    the other two at the end.
    """

    def parse_message(self, message: BaseMessage) -> Any:
        tries = self.judged(message)
        return {"raw": with_tries(message, tries.made), **_verdict(tries)}

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        whole = _Whole(self)
        for chunk in input:
            yield AddableDict(raw=whole.feed(chunk))
        yield AddableDict(_verdict(whole.tries()))

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        whole = _Whole(self)
        async for chunk in input:
            yield AddableDict(raw=whole.feed(chunk))
        yield AddableDict(_verdict(whole.tries()))


class _Whole:
    """An answer that comes in chunks, judged when it is there."""

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser
        self._text = ""
        self._cut = False

    def feed(self, chunk: str | BaseMessage) -> str | BaseMessage:
        """The chunk; the last one has the try in its metadata."""
        self._text += self._parser.written(chunk)
        self._cut = self._cut or is_cut(chunk)
        if isinstance(chunk, str) or (isinstance(chunk, AIMessageChunk) and chunk.chunk_position != "last"):
            return chunk
        return with_tries(chunk, self.tries().made)

    def tries(self) -> Tries[Any]:
        tries = Tries(self._parser.answer_schema.check)
        tries.take(self._text, cut=self._cut)
        return tries


def is_cut(message: str | BaseMessage) -> bool:
    """Whether an answer ended at max_tokens."""
    return not isinstance(message, str) and message.response_metadata.get("finish_reason") == "length"


def with_tries(message: Message, tries: Sequence[Try]) -> Message:
    """A copy of the message with these tries in its metadata."""
    return message.model_copy(update={"response_metadata": {**message.response_metadata, TRIES: as_json(tries)}})


def _value(tries: Tries[Any]) -> Any:
    try:
        return tries.value()
    except OutputInvalid as error:
        raise StructuredOutputInvalid(str(error), error.raw, error.tries) from error


def _verdict(tries: Tries[Any]) -> dict[str, Any]:
    try:
        return {"parsed": _value(tries), "parsing_error": None}
    except StructuredOutputInvalid as error:
        return {"parsed": None, "parsing_error": error}
