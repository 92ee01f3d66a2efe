"""Documents out of files: plain text, Markdown, HTML, PDF, rows of a CSV column, standard input.

What comes out is the text that a model reads and that offsets count in. Text and Markdown stay as they are. HTML is
laid out by inscriptis (tables keep their columns, scripts are gone), PDF is read by pypdf page by page; both come with
the extra `documents`. A file that cannot be read is an `Unread` and stops no other.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chatlocal.engine.errors import ChatLocalError, LibraryMissing, UnsupportedInput
from chatlocal.extractors.documents import Document, Unread
from chatlocal.extractors.results import Failure

STDIN = "-"
_INSTALL = "pip install 'chatlocal-llm[documents]'"
_LONGEST_CELL = 2**31 - 1  # characters; the csv module's own limit of 131,072 is below many documents


class DocumentFiles:
    """What to read: files, folders (with all below them), glob patterns, "-" for standard input.

    UnsupportedInput where something is not there or nothing is left to read. `skipped` counts the files of folders and
    patterns that are of no kind that is read, by suffix. `column` reads rows of CSV files, each one a document whose id
    is the file's with "#" and the number of the row, from 1; other files are then skipped.
    """

    def __init__(self, inputs: Sequence[str], *, column: str | None = None, encoding: str | None = None) -> None:
        self._column = column
        self._encoding = encoding
        self.skipped: Counter[str] = Counter()
        self.paths: list[str] = []
        for name in inputs:
            self.paths.extend(path for path in self._found(name) if path not in self.paths)
        if not self.paths:
            told = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in self.skipped.items())
            raise UnsupportedInput(
                f"There is nothing to read in {', '.join(inputs) or 'no input'}: of files, {', '.join(self._kinds())}"
                f" are read{f' ({told} skipped)' if told else ''}."
            )

    def _kinds(self) -> Sequence[str]:
        return (".csv",) if self._column is not None else (*_READERS,)

    def _found(self, name: str) -> list[str]:
        if name == STDIN:
            return [name]
        if os.path.isdir(name):
            return self._known(str(path) for path in sorted(Path(name).rglob("*")) if _is_visible_file(path, name))
        if os.path.isfile(name):
            return [name]
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise UnsupportedInput(f"There is no file, folder or match for {name}.")
        return self._known(match for match in matches if os.path.isfile(match))

    def _known(self, paths: Iterator[str]) -> list[str]:
        known = []
        for path in paths:
            suffix = os.path.splitext(path)[1].lower()
            if suffix in self._kinds():
                known.append(path)
            else:
                self.skipped[suffix] += 1
        return known

    def __len__(self) -> int:
        """How many files; the rows of CSV files are not counted beforehand."""
        return len(self.paths)

    def __iter__(self) -> Iterator[Document | Unread]:
        for path in self.paths:
            name = Path(path).as_posix()
            try:
                if self._column is not None:
                    yield from self._rows(path, name)
                elif path == STDIN:
                    yield Document(name, self._decoded(sys.stdin.buffer.read()))
                else:
                    read = _READERS.get(os.path.splitext(path)[1].lower(), DocumentFiles._decoded)
                    yield Document(name, read(self, Path(path).read_bytes()))
            except Exception as error:  # of a library that reads, anything
                yield Unread(name, _failure(error))

    def _rows(self, path: str, name: str) -> Iterator[Document | Unread]:
        csv.field_size_limit(_LONGEST_CELL)
        content = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
        rows = csv.DictReader(io.StringIO(self._decoded(content), newline=""))
        if self._column not in (rows.fieldnames or ()):
            raise UnsupportedInput(f"{name} has no column {self._column!r}, but: {', '.join(rows.fieldnames or ())}.")
        for number, row in enumerate(rows, 1):
            text = row[self._column]
            if text is None:
                problem = UnsupportedInput(f"Row {number} ends before the column {self._column!r}.")
                yield Unread(f"{name}#{number}", _failure(problem))
            else:
                yield Document(f"{name}#{number}", text)

    def _decoded(self, content: bytes) -> str:
        """Text in the encoding that was asked for, else what its byte order mark says, else UTF-8."""
        encoding = self._encoding or _marked(content) or "utf-8"
        try:
            return content.decode(encoding)
        except (UnicodeDecodeError, LookupError) as error:
            raise UnsupportedInput(
                f"The text is not in {encoding}: name its encoding, such as gb18030 ({error})."
            ) from error

    def _html(self, content: bytes) -> str:
        try:
            from inscriptis.html_engine import Inscriptis
            from inscriptis.model.config import ParserConfig
            from lxml import html
        except ImportError as error:
            raise LibraryMissing(f"HTML is read by inscriptis: {_INSTALL}") from error
        # Where nobody says it, lxml looks for a <meta charset> and takes Latin-1 if there is none; today that is UTF-8.
        told = b"charset" in content[:4096].lower() or b"encoding" in content[:100].lower()
        if self._encoding or _marked(content) or not told:
            content, encoding = self._decoded(content).encode(), "utf-8"
        else:
            encoding = None
        if not content.strip():
            return ""
        tree = html.fromstring(content, parser=html.HTMLParser(encoding=encoding))
        return str(Inscriptis(tree, ParserConfig()).get_text())

    def _pdf(self, content: bytes) -> str:
        try:
            from pypdf import PdfReader
        except ImportError as error:
            raise LibraryMissing(f"PDF is read by pypdf: {_INSTALL}") from error
        pages = [page.extract_text() for page in PdfReader(io.BytesIO(content)).pages]
        if pages and not any(page.strip() for page in pages):
            raise UnsupportedInput("No page holds text: scanned pages have to go through OCR first.")
        return "\n\n".join(pages)


_READERS: dict[str, Callable[[DocumentFiles, bytes], str]] = {
    ".txt": DocumentFiles._decoded,
    ".md": DocumentFiles._decoded,
    ".markdown": DocumentFiles._decoded,
    ".html": DocumentFiles._html,
    ".htm": DocumentFiles._html,
    ".pdf": DocumentFiles._pdf,
}


def _is_visible_file(path: Path, folder: str) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _marked(content: bytes) -> str | None:
    if content.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    return "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else None


def _failure(error: Exception) -> Failure:
    said = error.strerror if isinstance(error, OSError) and not isinstance(error, ChatLocalError) else None
    return Failure(type(error).__name__, said or str(error) or type(error).__name__)
