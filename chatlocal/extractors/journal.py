"""Files of JSON lines that lose nothing when a process is killed at any instant, and a run that goes on from them.

Two files belong to a run. `OUTPUT.parts` gets a line for each part of a document as soon as the model has answered; its
first line holds the settings of the run. `OUTPUT` gets a line for each document, in their order. The second one follows
from the documents and the first, so a run that goes on writes it again from the first line that is not as it should be.

A line is appended by one write and ends with a newline; what stands behind the last newline was torn by a kill and is
cut off.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from chatlocal.engine.errors import OutputConflict
from chatlocal.extractors.results_json import dump
from chatlocal.extractors.run_settings import difference
from chatlocal.extractors.splitting import Part

_TITLE = "parts of an extraction"


class Lines:
    """A file of lines, read from its beginning and appended to at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed by `close`
        self._cut_torn_line()

    def _cut_torn_line(self) -> None:
        size = end = self._file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - 65_536)
            self._file.seek(begin)
            newline = (self._file.read(end - begin) or b"").rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        if end < size:
            self._file.truncate(end)

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Every line with where it begins, without its newline."""
        with open(self.path, "rb") as lines:
            at = 0
            for line in lines:
                yield at, line[:-1]
                at += len(line)

    def line_at(self, at: int) -> bytes:
        """The line that begins at this byte, without its newline; empty behind the last one."""
        with open(self.path, "rb") as lines:
            lines.seek(at)
            return lines.readline()[:-1]

    def append(self, line: bytes) -> int:
        """Write a line, all of it or nothing; returns where it begins."""
        at = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:  # the disk is full: no half of a line may stand before the next one
            self._file.truncate(at)
            raise
        return at

    def truncate(self, at: int) -> None:
        """Drop every line that begins at this byte or behind it."""
        self._file.truncate(at)

    def sync(self) -> None:
        """Have the system write to the disk what was appended: a kill loses nothing without it, a power cut does."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Journal:
    """The answers to parts of documents, kept in `OUTPUT.parts`, and the lines of `OUTPUT`.

    OutputConflict where the files were begun with other settings, are no files of a run, or are being written by
    another one. `settings` is a JSON object; the message names what differs.
    """

    def __init__(self, output: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        path = Path(output)
        parts = path.with_name(f"{path.name}.parts")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._places: dict[tuple[str, str], dict[tuple[int, Part], int]] = {}
        self._writing = threading.Lock()
        with ExitStack() as held:
            try:
                held.enter_context(FileLock(f"{parts}.lock", timeout=0))
            except Timeout:
                raise OutputConflict(f"Another run is writing {path}: wait for it, or choose another output.") from None
            if path.exists() and path.stat().st_size and not parts.exists():
                raise OutputConflict(
                    f"{path} is there already, without {parts.name}, where a run keeps what it did: choose another"
                    " output, or move the file away."
                )
            self._parts = Lines(parts)
            held.callback(self._parts.close)
            self._read(json.loads(dump(settings)))
            self._documents = Lines(path)
            held.callback(self._documents.close)
            self._next = 0  # where the next document's line stands, or will
            self._behind = self._documents.line_at(0) != b""
            self._held = held.pop_all()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:  # a thread that is in the middle of a line ends it
            self._held.close()

    def _read(self, settings: dict[str, Any]) -> None:
        begun = False
        for at, line in self._parts.read():
            try:
                entry = json.loads(line)
                if begun:
                    self._note(entry, at)
                else:
                    title, before = entry["file"], entry["settings"]
                    begun = True
            except (ValueError, KeyError, TypeError) as error:
                raise OutputConflict(
                    f"{self._parts.path} cannot be read at byte {at}: choose another output, or move the file away."
                ) from error
            if at == 0:
                self._compare(title, before, settings)
        if not begun:
            self._parts.append(dump({"file": _TITLE, "settings": settings}).encode())

    def _compare(self, title: str, before: dict[str, Any], now: dict[str, Any]) -> None:
        if title != _TITLE:
            raise OutputConflict(f"{self._parts.path} is no file of a run: choose another output, or move it away.")
        if told := difference(before, now):
            raise OutputConflict(
                f"{self._parts.path.with_suffix('')} was begun with other settings ({told}): give the same ones to go"
                f" on, or choose another output, or delete it and {self._parts.path.name} to begin anew."
            )

    def _note(self, entry: dict[str, Any], at: int) -> None:
        key = entry["document"], entry["sha256"]
        self._places.setdefault(key, {})[entry["pass"], Part(entry["start"], entry["end"])] = at

    def parts(self, document: str, digest: str) -> list[tuple[int, Part]]:
        """Which parts of a document are there: number of the pass and place, in order."""
        return sorted(self._places.get((document, digest), ()))

    def part(self, document: str, digest: str, number: int, part: Part) -> Any:
        """What was found in a part, as it was put in."""
        line = self._parts.line_at(self._places[document, digest][number, part])
        return json.loads(line)["found"]

    def put_part(self, document: str, digest: str, number: int, part: Part, found: Any) -> None:
        """Keep what was found in a part, a JSON value. Any thread may call this."""
        place: dict[str, Any] = {
            "document": document,
            "sha256": digest,
            "pass": number,
            "start": part.start,
            "end": part.end,
        }
        line = dump({**place, "found": found}).encode()
        with self._writing:
            self._note(place, self._parts.append(line))

    def next_document(self) -> dict[str, Any]:
        """The line that stands where the next document's line belongs; empty where there is none or it is no object."""
        try:
            found = json.loads(self._documents.line_at(self._next)) if self._behind else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def put_document(self, line: Mapping[str, Any]) -> None:
        """The next document's line: left as it is where it stands there already, else written."""
        written = dump(line).encode()
        if self._behind and self._documents.line_at(self._next) != written:
            self._documents.truncate(self._next)
            self._behind = False
        if not self._behind:
            self._parts.sync()
            self._documents.append(written)
            self._documents.sync()
        self._next += len(written) + 1
        self._behind = self._behind and self._documents.line_at(self._next) != b""

    def end(self) -> None:
        """There are no more documents: lines of documents that are gone go too."""
        if self._behind:
            self._documents.truncate(self._next)
