"""`chatlocal extract`: records out of documents, as JSON lines and as a report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatlocal.commands.schema_argument import read_schema
from chatlocal.engine.errors import UnsupportedInput

if TYPE_CHECKING:
    from chatlocal.extractors.documents import Document, Unread
    from chatlocal.extractors.readers import DocumentFiles
    from chatlocal.extractors.results import Extraction

SOME_FAILED = 3
"""Exit code of a run that went to its end while something in a document failed."""

_ABOUT = """Turn documents into records: one line of JSON for each document. A run that was stopped goes on when it is
started again with the same settings and output. Exit codes: 0 all is well, 1 an error ended the run, 2 wrong usage,
3 the run went to its end and something in a document failed, 130 interrupted."""


def add_to(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser("extract", help="turn documents into records", description=_ABOUT)
    add = parser.add_argument
    add("--schema", required=True, help="module:Model, path/to/file.py:Model or path/to/schema.json")
    add("--many", action="store_true", help="a document holds any number of records of the schema")
    add(
        "--input",
        required=True,
        nargs="+",
        action="extend",
        metavar="PATH",
        help="files, folders, patterns, - for stdin",
    )
    add("--column", metavar="NAME", help="read CSV files: each row is a document, its text is in this column")
    add("--encoding", metavar="NAME", help="of text files (default: UTF-8)")
    add("--output", default="-", metavar="FILE", help="JSON lines; also the place to go on from (default: stdout)")
    add("--report", metavar="FILE", help="an HTML page with the texts and what was found in them")
    add("--model", help="folder, hub id or GGUF file (default: embedded)")
    add("--dtype", metavar="NAME", help="of the weights, such as float32 (default: the model's own)")
    add("--instructions", metavar="TEXT", help="what the model should mind")
    add("--examples", metavar="FILE", help='JSON lines {"text": ..., "answer": ...}, answers as the schema has them')
    add("--method", choices=("write", "choose"), help="write JSON, or choose values by likelihood (default: by model)")
    add("--grounded", action="store_true", help="strings are words of the text, nothing else")
    add("--min-confidence", type=float, metavar="P", help="values below this probability are null and flagged")
    add("--key", nargs="+", metavar="FIELD", help="records of a document that agree in these fields are one")
    add("--part-tokens", type=int, default=512, metavar="N", help="longer texts are cut into parts (default: 512)")
    add("--overlap-tokens", type=int, default=64, metavar="N", help="what neighbouring parts share (default: 64)")
    add("--passes", type=int, default=1, metavar="N", help="read each document so often, in other parts (default: 1)")
    add("--concurrency", type=int, default=16, metavar="N", help="parts that are read at once (default: 16)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the model, extract from all documents, say what failed."""
    from chatlocal.engine import Engine
    from chatlocal.extractors import DocumentFiles, Extractor, extract_documents, write_report

    # All that can be wrong is found before a model is loaded.
    schema = read_schema(options.schema, many=options.many)
    files = DocumentFiles(options.input, column=options.column, encoding=options.encoding)
    examples = _examples(options.examples) if options.examples else ()
    if skipped := files.skipped:
        told = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in sorted(skipped.items()))
        print(f"chatlocal: skipped files of other kinds: {told}", file=sys.stderr)
    seen = _Seen(files, keep=options.report is not None)
    with Engine.load(options.model, dtype=options.dtype) as engine:
        extractor = Extractor(
            schema,
            engine,
            examples=examples,
            instructions=options.instructions,
            grounded=options.grounded,
            method=options.method,
            min_confidence=options.min_confidence,
            key=options.key,
        )
        results = extract_documents(
            extractor,
            seen,
            output=None if options.output == "-" else options.output,
            part_tokens=options.part_tokens,
            overlap_tokens=options.overlap_tokens,
            passes=options.passes,
            concurrency=options.concurrency,
        )
        summary = _Summary()
        kept = [one for one in summary.over(results, show=options.output == "-") if options.report is not None]
    if options.report is not None:
        title = f"Extraction from {', '.join(options.input)}"
        write_report(options.report, kept, seen.texts, title=title)
    summary.tell()
    return SOME_FAILED if summary.failed else 0


def _examples(path: str) -> list[tuple[str, Any]]:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        return [(example["text"], example["answer"]) for example in map(json.loads, filter(str.strip, lines))]
    except OSError as error:
        raise UnsupportedInput(f"The examples {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnsupportedInput(
            f'The examples {path} are not lines of {{"text": ..., "answer": ...}}: {type(error).__name__}: {error}.'
        ) from error


class _Seen:
    """Documents on their way to the model; `texts` keeps them for a report where `keep` says so."""

    def __init__(self, files: DocumentFiles, keep: bool) -> None:
        self._files = files
        self._keep = keep
        self.texts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Document | Unread]:
        from chatlocal.extractors.documents import Document, documents_of

        for document in documents_of(self._files):
            if self._keep and isinstance(document, Document):
                self.texts[document.id] = document.text
            yield document


class _Summary:
    """Counts what went by, and says it on stderr."""

    def __init__(self) -> None:
        self.documents = self.records = self.flagged = 0
        self.failed: list[Extraction] = []

    def over(self, results: Iterable[Extraction], show: bool) -> Iterator[Extraction]:
        from chatlocal.extractors.results_json import document_json, dump

        for extraction in results:
            self.documents += 1
            self.records += len(extraction.records)
            self.flagged += sum(bool(one.flags) for record in extraction.records for one in record.fields)
            if extraction.failures:
                self.failed.append(extraction)
            if show:
                print(dump(document_json(extraction)), flush=True)
            yield extraction

    def tell(self) -> None:
        for extraction in self.failed:
            for failure in extraction.failures:
                where = f", characters {failure.start} to {failure.end}" if failure.end else ""
                print(f"chatlocal: {extraction.document}{where}: {failure.error}: {failure.message}", file=sys.stderr)
        review = f", {self.flagged} values to review" if self.flagged else ""
        failed = f", {len(self.failed)} of the documents with failures" if self.failed else ""
        print(f"chatlocal: {self.documents} documents, {self.records} records{review}{failed}", file=sys.stderr)
