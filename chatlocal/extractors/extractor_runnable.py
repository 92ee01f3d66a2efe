"""An Extractor as a step of LangChain's chains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ensure_config, run_in_executor

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.extractor import Extractor
from chatlocal.extractors.results import Extraction


class ExtractorRunnable(Runnable[Any, Extraction]):
    """From a text to its Extraction.

    The input is a text; a Document, whose `id` or metadata "source" becomes the document's id; what a prompt or a model
    gives (of several messages the last one counts); or a dict with one of these under "text". UnsupportedInput for
    others.
    """

    def __init__(self, extractor: Extractor) -> None:
        self.extractor = extractor
        self.name = "Extractor"

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Extraction:
        def run(given: Any) -> Extraction:
            text, document = text_of(given)
            return self.extractor.extract(text, document=document)

        return self._call_with_config(run, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Extraction:
        async def run(given: Any) -> Extraction:
            text, document = text_of(given)
            return await self.extractor.aextract(text, document=document)

        return await self._acall_with_config(run, input, config, **kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Extraction]:
        text, document = text_of(input)
        with closing(self.extractor.stream(text, document=document)) as growing:  # type: ignore[type-var]
            yield from growing

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Extraction]:
        config = ensure_config(config)
        growing = self.stream(input, config, **kwargs)
        try:
            while (found := await run_in_executor(config, next, growing, None)) is not None:
                yield found
        finally:
            growing.close()  # type: ignore[attr-defined]


def text_of(given: Any) -> tuple[str, str | None]:
    """The text to extract from, and the id of its document where it has one."""
    if isinstance(given, str):
        return given, None
    if isinstance(given, Document):
        named = given.id or given.metadata.get("source")
        return given.page_content, None if named is None else str(named)
    if isinstance(given, PromptValue):
        return text_of(given.to_messages()[-1])
    if isinstance(given, BaseMessage):
        return str(given.text), None
    if isinstance(given, Mapping) and "text" in given:
        return text_of(given["text"])
    shown = f"a dict with {sorted(given)}" if isinstance(given, Mapping) else type(given).__name__
    raise UnsupportedInput(f"A text, a Document, a prompt's value or a dict with 'text' is wanted, got {shown}.")
