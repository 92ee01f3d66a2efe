"""`extract_from_documents`: a chain over many documents at once, each result with its document's id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.kor_answer import KorExtraction


class DocumentExtraction(KorExtraction):
    """An extraction and the ids of what it is from."""

    uid: str
    """Of the extraction."""
    source_uid: str
    """Of the document."""


async def extract_from_documents(
    chain: Runnable[Any, Any],
    documents: Sequence[Document],
    *,
    max_concurrency: int = 1,
    use_uid: bool = False,
    extraction_uid_function: Callable[[Document], str] | None = None,
    return_exceptions: bool = False,
) -> list[Any]:
    """The DocumentExtraction of each document, in order; `max_concurrency` of them at once.

    A document's id is its place in the list, or with `use_uid` the "uid" of its metadata; UnsupportedInput where that
    is missing. `extraction_uid_function` gives the extraction another id than its document's. What the model raises
    stands in the place of its result with `return_exceptions`, and is raised otherwise, which ends the others.
    """
    if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise UnsupportedInput(f"max_concurrency is a whole number from 1 on, got {max_concurrency!r}.")
    named = [(_uid(document, place) if use_uid else str(place), document) for place, document in enumerate(documents)]
    limit = asyncio.Semaphore(max_concurrency)

    async def extract(source_uid: str, document: Document) -> DocumentExtraction:
        async with limit:
            uid = extraction_uid_function(document) if extraction_uid_function else source_uid
            found = await chain.ainvoke(document.page_content)
        return DocumentExtraction(
            uid=str(uid),
            source_uid=source_uid,
            data=found["data"],
            raw=found["raw"],
            errors=found["errors"],
            validated_data=found["validated_data"],
        )

    tasks = [asyncio.ensure_future(extract(uid, document)) for uid, document in named]
    try:
        return list(await asyncio.gather(*tasks, return_exceptions=return_exceptions))
    finally:
        for task in tasks:
            task.cancel()


def _uid(document: Document, place: int) -> str:
    uid = document.metadata.get("uid")
    if uid is None:
        raise UnsupportedInput(f"Document {place} has no uid in its metadata: give it one, or leave use_uid out.")
    return str(uid)
