"""Extracting from many documents of any length: cut into parts, read at once, kept as they come, merged in order.

Parts go to the model by several threads, so that an engine always has a full batch: it reads what their prompts share
once. One that is done is kept at once, whatever the others do. Documents come out in the order in which they went in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from chatlocal.engine.errors import BudgetTooSmall, EngineClosed, UnsupportedInput, UnsupportedSchema
from chatlocal.engine.progress import shown
from chatlocal.extractors.documents import Document, Unread, documents_of
from chatlocal.extractors.journal import Journal
from chatlocal.extractors.merging import merge, moved
from chatlocal.extractors.results import Extraction, Failure
from chatlocal.extractors.results_json import document_json, extraction_json, read_extraction
from chatlocal.extractors.run_settings import settings_of
from chatlocal.extractors.splitting import Part, split

if TYPE_CHECKING:
    import os

    from chatlocal.extractors.extractor import Extractor

# With these every part would fail alike.
_ENDS_ALL = (EngineClosed, UnsupportedSchema, BudgetTooSmall)
# A further pass cuts no smaller parts than this many tokens: they are hardly a sentence.
_SHORTEST = 32


def extract_documents(
    extractor: Extractor,
    documents: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    part_tokens: int = 512,
    overlap_tokens: int = 64,
    passes: int = 1,
    concurrency: int = 16,
    progress: bool | None = None,
) -> Iterator[Extraction]:
    """The extraction of each document, in their order, as they get ready; the work goes on while this is iterated.

    `documents` is what `documents_of` takes: texts, (id, text) pairs, a dict, LangChain Documents, `DocumentFiles`.
    Texts above `part_tokens` are cut (`split`) and their records merged (`merge`; the extractor's `key` says which are
    the same). Each of several `passes` reads all of the text again in smaller parts: that finds more and costs more.

    `output` gets a line for each document; a run that was killed goes on there when it is called again with the same
    settings, and reads nothing twice that was answered (`OUTPUT.parts` keeps the answers). OutputConflict where the
    settings are others.

    What goes wrong in one document is in its `failures`, and the others go on. An answer that never got valid is kept
    like any other; a part whose request failed (memory, time) is tried again by the next run. EngineClosed,
    UnsupportedSchema and BudgetTooSmall end the run. `progress` shows a bar; None: when stderr is a terminal.
    """
    if passes < 1 or concurrency < 1:
        raise UnsupportedInput(f"passes and concurrency are at least 1, got {passes} and {concurrency}.")
    if not 0 <= overlap_tokens < part_tokens:
        raise UnsupportedInput(
            f"overlap_tokens is at least 0 and below part_tokens, got {overlap_tokens}, {part_tokens}."
        )
    _check_key(extractor)
    settings = settings_of(extractor, part_tokens=part_tokens, overlap_tokens=overlap_tokens, passes=passes)
    cutting = _Cutting(extractor, part_tokens, overlap_tokens, passes)
    return _run(extractor, documents, cutting, output, settings, concurrency, shown(progress))


def _check_key(extractor: Extractor) -> None:
    """Refuse a key that no record has: it would join nothing, and nobody would see why."""
    for name in extractor.key or ():
        known = [kind.schema.get("properties") for kind in extractor.schema.kinds]
        if all(names is not None and name not in names for names in known):
            raise UnsupportedInput(f"key: no record has the field {name!r}, but: {', '.join(known[0] or ())}.")


def _run(
    extractor: Extractor,
    documents: Any,
    cutting: _Cutting,
    output: str | os.PathLike[str] | None,
    settings: Mapping[str, Any],
    concurrency: int,
    show: bool,
) -> Iterator[Extraction]:
    total = len(documents) if hasattr(documents, "__len__") else None
    bar: tqdm[Any] = tqdm(total=total, desc="extracting", unit="document", disable=not show, bar_format=_BAR)
    with bar, nullcontext() if output is None else Journal(output, settings) as journal:
        run = _Run(extractor, cutting, journal, concurrency, bar)
        try:
            yield from run.results(documents_of(documents))
        finally:
            run.stop()
        if journal is not None:
            journal.end()


_BAR = "{desc} {n:.1f}/{total_fmt} documents |{bar}| {elapsed}<{remaining}{postfix}"


@dataclass(frozen=True)
class _Cutting:
    """How texts become parts."""

    extractor: Extractor
    part_tokens: int
    overlap_tokens: int
    passes: int

    def parts(self, text: str) -> list[tuple[int, Part]]:
        """With the number of the pass that cuts so. A part that two passes have in common is there once."""
        found: dict[Part, int] = {}
        count = self.extractor.count_tokens
        whole = self.part_tokens if self.passes == 1 else min(self.part_tokens, count(text))
        for number in range(self.passes):
            tokens = max(whole - whole * number // (self.passes + 1), min(_SHORTEST, self.part_tokens))
            overlap = min(self.overlap_tokens, tokens // 2) if number else self.overlap_tokens
            for part in split(text, count, max_tokens=tokens, overlap_tokens=overlap):
                found.setdefault(part, number)
        return [(number, part) for part, number in found.items()]


@dataclass
class _Work:
    """A document on its way: what its parts gave so far."""

    id: str
    document: Document | None
    failures: tuple[Failure, ...] = ()
    parts: Sequence[tuple[int, Part]] = ()
    found: dict[tuple[int, Part], Extraction] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return len(self.found) == len(self.parts)


class _Run:
    def __init__(
        self, extractor: Extractor, cutting: _Cutting, journal: Journal | None, concurrency: int, bar: tqdm[Any]
    ) -> None:
        self._extractor = extractor
        self._cutting = cutting
        self._journal = journal
        self._ahead = 2 * concurrency
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="chatlocal-extract")
        self._bar = bar
        self._records = 0
        self._works: deque[_Work] = deque()
        self._waiting: deque[tuple[_Work, tuple[int, Part]]] = deque()
        self._asked: dict[Future[Extraction], tuple[_Work, tuple[int, Part]]] = {}

    def results(self, documents: Iterator[Document | Unread]) -> Iterator[Extraction]:
        more = True
        while more or self._works:
            room = max(len(self._waiting) + len(self._asked), len(self._works)) < self._ahead
            if more and room:
                document = next(documents, None)
                more = document is not None
                if document is not None:
                    self._take(document)
            while self._waiting and len(self._asked) < self._ahead:
                self._ask(*self._waiting.popleft())
            while self._works and self._works[0].ready:
                yield self._finished(self._works.popleft())
            if self._asked and not (more and room):
                self._collect()

    def stop(self) -> None:
        """Ask for nothing more. What is being answered now is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, document: Document | Unread) -> None:
        """Begin a document: what the journal has of it is there already."""
        if isinstance(document, Unread):
            self._works.append(_Work(document.id, None, (document.failure,)))
            return
        work = _Work(document.id, document)
        self._works.append(work)
        known = self._journal.parts(document.id, document.digest) if self._journal else []
        line = self._journal.next_document() if self._journal and len(self._works) == 1 else {}
        written = line.get("document") == document.id and line.get("sha256") == document.digest
        # A line that was written says how many parts there are, which saves cutting the text once more.
        whole = written and line.get("parts") == len(known)
        work.parts = known if whole else self._cutting.parts(document.text)
        for place in work.parts:
            if self._journal and place in known:
                found = self._journal.part(document.id, document.digest, *place)
                work.found[place] = read_extraction(found, self._extractor.schema, document.id)
            else:
                self._waiting.append((work, place))
        self._show(len(work.found) / max(len(work.parts), 1))

    def _ask(self, work: _Work, place: tuple[int, Part]) -> None:
        self._asked[self._threads.submit(self._answer, work, *place)] = (work, place)

    def _answer(self, work: _Work, number: int, part: Part) -> Extraction:
        """In a thread: what the model says to a part, kept before anybody looks at it."""
        assert work.document is not None
        try:
            answer = self._extractor.extract(work.document.text[part.start : part.end])
        except _ENDS_ALL:
            raise
        except Exception as error:  # of a model, anything; the next run tries again
            failure = Failure(type(error).__name__, str(error), "", part.start, part.end)
            return Extraction(None, None, failures=(failure,), document=work.id)
        # Through JSON in any case, so that a run that goes on gives what an uninterrupted one gives.
        found = extraction_json(moved(answer, part, work.id))
        if self._journal:
            self._journal.put_part(work.id, work.document.digest, number, part, found)
        return read_extraction(found, self._extractor.schema, work.id)

    def _collect(self) -> None:
        """Take what was answered; wait for one answer at least."""
        done, _ = wait(self._asked, return_when=FIRST_COMPLETED)
        for future in done:
            work, place = self._asked.pop(future)
            work.found[place] = future.result()
            self._show(1 / len(work.parts))

    def _finished(self, work: _Work) -> Extraction:
        if work.document is None:
            result = Extraction(None, None, failures=work.failures, document=work.id)
            self._show(1)
        else:
            parts = [(place[1], work.found[place]) for place in work.parts]
            result = merge(parts, self._extractor.schema, key=self._extractor.key, document=work.id)
            if not work.parts:
                self._show(1)
        if self._journal:
            document = work.document
            about = {"characters": None, "sha256": None} if document is None else _about(document)
            self._journal.put_document({**document_json(result), **about, "parts": len(work.parts)})
        self._records += len(result.records)
        self._bar.set_postfix_str(f"{self._records} records", refresh=False)
        return result

    def _show(self, documents: float) -> None:
        self._bar.update(documents)


def _about(document: Document) -> dict[str, Any]:
    return {"characters": len(document.text), "sha256": document.digest}
