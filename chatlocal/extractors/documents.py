"""What documents are, whatever they come as."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.results import Failure


@dataclass(frozen=True)
class Document:
    """A text under a name."""

    id: str
    text: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Unread:
    """A document that could not be read."""

    id: str
    failure: Failure


def documents_of(given: Any) -> Iterator[Document | Unread]:
    """Documents of a mapping of ids to texts, or of an iterable of any of: `Document`, `Unread`, a text (its id is its
    number, from "1"), an (id, text) pair, a LangChain Document (its id, else its metadata's "source", else its number).

    An id that has been there before gets "#2", "#3" and so on behind it. UnsupportedInput for anything else.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UnsupportedInput(f"Documents come as a list or another iterable, or a dict, got {type(given).__name__}.")
    seen: Counter[str] = Counter()
    for number, item in enumerate(given.items() if isinstance(given, Mapping) else given, 1):
        document = _document_of(item, str(number))
        name = document.id
        seen[name] += 1
        while seen[name] > 1:
            name = f"{document.id}#{seen[document.id]}"
            seen[name] += 1
        yield document if name == document.id else replace(document, id=name)


def _document_of(item: Any, number: str) -> Document | Unread:
    if isinstance(item, Document | Unread):
        return item
    if isinstance(item, str):
        return Document(number, item)
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], str):
        return Document(str(item[0]), item[1])
    text = getattr(item, "page_content", None)
    if isinstance(text, str):
        metadata = getattr(item, "metadata", None) or {}
        return Document(str(getattr(item, "id", None) or metadata.get("source") or number), text)
    raise UnsupportedInput(f"A document is a text, an (id, text) pair or a LangChain Document, got {item!r:.80}.")
