"""Reading structured answers: growing partial objects while they stream, a validated one at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.utils import AddableDict
from pydantic import ConfigDict
from pydantic_core import from_json

from chatlocal.engine.errors import OutputInvalid
from chatlocal.integrations.langchain_calls import arguments_text
from chatlocal.integrations.langchain_schemas import Schema


class StructuredOutputInvalid(OutputInvalid, OutputParserException):
    """OutputInvalid that can be caught as langchain_core's OutputParserException too; `raw` is also `llm_output`."""

    def __init__(self, message: str, raw: str) -> None:
        super().__init__(message, raw)
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
        return self._checked(text)

    def error_of(self, text: str) -> StructuredOutputInvalid | None:
        """What is wrong with an answer."""
        try:
            self._checked(text)
        except StructuredOutputInvalid as error:
            return error
        return None

    def _checked(self, text: str) -> Any:
        try:
            return self.answer_schema.check(text)
        except OutputInvalid as error:
            raise StructuredOutputInvalid(str(error), error.raw) from error

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        return self.parse(self.written(_message(result[0])))

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
        reader = _Growing(self.answer_schema)
        for chunk in input:
            yield from reader.feed(self.written(chunk))
        yield from reader.changed(self.parse(reader.text))

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        reader = _Growing(self.answer_schema)
        async for chunk in input:
            for value in reader.feed(self.written(chunk)):
                yield value
        for value in reader.changed(self.parse(reader.text)):
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
    """The values of a growing JSON text. Strings grow by characters; a number counts when it is complete."""

    _NOTHING = object()

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._last: Any = self._NOTHING
        self._in_string = False
        self._escaped = False
        self.text = ""

    def feed(self, text: str) -> Iterator[Any]:
        if not text:
            return
        for character in text:
            self._follow(character)
        self.text += text
        try:
            value = self._schema.build(from_json(self._complete(), allow_partial="trailing-strings"))
        except ValueError:  # not enough of it yet
            return
        yield from self.changed(value)

    def changed(self, value: Any) -> Iterator[Any]:
        if self._last is self._NOTHING or value != self._last:
            self._last = value
            yield value

    def _complete(self) -> str:
        """The text without a number at its end, which may still grow from 1 to 12."""
        return self.text if self._in_string else self.text.rstrip("+-.0123456789eE")

    def _follow(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == '"':
            self._in_string = not self._in_string
        else:
            self._escaped = self._in_string and character == "\\"


class RawAnswerParser(AnswerParser):
    """The same with the message beside it: a dict of `raw`, `parsed` and `parsing_error`; a wrong answer is not raised.

    Streaming gives dicts that can be added up: the raw chunks as they come, the other two at the end.
    """

    def parse(self, text: str) -> Any:
        return self._judge(AIMessage(text))

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        return self._judge(_message(result[0]))

    def _judge(self, raw: BaseMessage) -> dict[str, Any]:
        return {"raw": raw, **self._verdict(self.written(raw))}

    def _verdict(self, text: str) -> dict[str, Any]:
        try:
            return {"parsed": self._checked(text), "parsing_error": None}
        except StructuredOutputInvalid as error:
            return {"parsed": None, "parsing_error": error}

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        text = ""
        for chunk in input:
            text += self.written(chunk)
            yield AddableDict(raw=chunk)
        yield AddableDict(self._verdict(text))

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        text = ""
        async for chunk in input:
            text += self.written(chunk)
            yield AddableDict(raw=chunk)
        yield AddableDict(self._verdict(text))


def _message(generation: Generation) -> BaseMessage:
    return generation.message if isinstance(generation, ChatGeneration) else AIMessage(generation.text)
