"""Finding a table in an answer and reading it, with whatever the model wrote around it."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import Any

from chatlocal.extractors.nodes import Object, Text
from chatlocal.extractors.typed_values import typed

# Delimiters that models use in the place of the one they were asked for.
_OTHERS = (",", "\t", ";")
_LEAD = re.compile(r"^\s*(?:output|answer|csv|table)\s*[:：]\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?:。！？：…]\W*$")
_WORD = re.compile(r"[\w']+")


@dataclass
class Table:
    """Rows by the names of columns, cells as text; `problems` are lines that may be rows and could not be read."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_table(text: str, node: Object, delimiter: str) -> Table | None:
    """The first table of a text that has the names of a node's attributes above its columns.

    A table without a header is read where the text begins with it. None where there is no table.
    """
    lines = re.split(r"\r\n|\n|\r", text)
    ids = {attribute.id.lower(): attribute.id for attribute in node.attributes}
    for few in (False, True):
        for place, line in enumerate(lines):
            for divider in (delimiter, *_OTHERS):
                names = _names(line, divider, ids, few)
                if names is not None:
                    reader = _Rows(node, names, divider, line)
                    reader.read(lines[place + 1 :])
                    return reader.table
    return _without_header(lines, node, delimiter)


def _names(line: str, divider: str, ids: dict[str, str], few: bool) -> list[str] | None:
    """The columns that a header names; None where a line is no header. `few`: one name of several is enough."""
    bare = _LEAD.sub("", line).strip()
    cells = [cell.strip('"`*').strip() for cell in _cells(bare.strip("|") if divider == "|" else bare, divider)]
    names = [ids.get(cell.lower(), cell) for cell in cells]
    known = [name for name in names if name in ids.values()]
    if len(set(names)) < len(names) or not known or not all(names):
        return None
    complete = len(known) == len(ids)
    return names if complete or (len(known) == len(names) and (few or len(known) > 1)) else None


def _without_header(lines: list[str], node: Object, delimiter: str) -> Table | None:
    written = [line for line in lines if line.strip()]
    names = [attribute.id for attribute in node.attributes]
    if len(names) < 2 or not written:
        return None
    reader = _Rows(node, names, delimiter, "")
    first = _cells(written[0], delimiter)
    if not reader.fits(first) or _is_prose(first):
        return None
    reader.read(lines[lines.index(written[0]) :])
    reader.table.problems.insert(0, "The table has no header: its columns were taken in the order of the schema.")
    return reader.table


class _Rows:
    """`header` is the line of the names, "" for none: a table of Markdown has a delimiter at both ends of its lines."""

    def __init__(self, node: Object, names: list[str], divider: str, header: str) -> None:
        self.table = Table()
        self._nodes = {attribute.id: attribute for attribute in node.attributes}
        self._names = names
        self._divider = divider
        bare = header.strip()
        self._opens, self._ends = (mark(divider) and divider == "|" for mark in (bare.startswith, bare.endswith))
        self._over = False  # the table may have ended: what follows must look like a row to be one

    def read(self, lines: list[str]) -> None:
        place = 0
        while place < len(lines) and not lines[place].lstrip().startswith("```"):
            record = _record_at(lines, place)
            place += len(record)
            self._take("\n".join(record))

    def fits(self, cells: list[str]) -> bool:
        """Whether a row has as many cells as there are columns, each of its type."""
        return len(cells) == len(self._names) and not any(
            typed(self._nodes[name], cell or None)[1]
            for name, cell in zip(self._names, cells, strict=True)
            if name in self._nodes
        )

    def _take(self, line: str) -> None:
        if not line.strip():
            self._over = self._over or bool(self.table.rows)
            return
        cells = _cells(self._bare(line), self._divider)
        header = [cell.lower() for cell in cells] == [name.lower() for name in self._names]
        rule = "--" in line and set(line) <= set("|:- ") and (len(self._names) > 1 or self._opens)
        if header or rule:
            self._over = self._over or bool(rule and self.table.rows)
            return
        if not self._over and len(cells) < len(self._names) and self._divider not in line and _is_prose(cells):
            self._over = True
        if self._over:
            self._take_behind(line, cells)
        elif len(cells) > len(self._names):
            self._refuse(line, f"has {len(cells)} cells and the table {len(self._names)} columns")
        else:
            self._keep(cells)

    def _take_behind(self, line: str, cells: list[str]) -> None:
        """A line behind an empty one: a row if it looks like one, else what the model says of its table."""
        if not self.fits(cells):
            return
        if not _is_prose(cells):
            self._keep(cells)
        elif not (len(cells) == 1 and _SENTENCE_END.search(line)):
            self._refuse(line, "stands behind the table, and may be a remark")

    def _bare(self, line: str) -> str:
        bare = line.strip() if self._divider != "\t" else line
        bare = bare.removeprefix(self._divider) if self._opens else bare
        return bare.removesuffix(self._divider) if self._ends else bare

    def _keep(self, cells: list[str]) -> None:
        cells = cells + [""] * (len(self._names) - len(cells))
        row: dict[str, Any] = {}
        for name, cell in zip(self._names, cells, strict=True):
            text = isinstance(self._nodes.get(name, _UNKNOWN), Text)
            row[name] = cell if text or cell else None
        self.table.rows.append(row)

    def _refuse(self, line: str, why: str) -> None:
        self.table.problems.append(f"The line {line!r:.100} was not read: it {why}.")


_UNKNOWN = Text(id="unknown")


def _record_at(lines: list[str], place: int) -> list[str]:
    """The lines of one record: more than one where a cell in quotes goes on, and its closing quote comes."""
    if lines[place].count('"') % 2 == 0 or not lines[place].strip():
        return [lines[place]]
    for end in range(place + 1, len(lines)):
        if lines[end].count('"') % 2:
            return lines[place : end + 1]
    return [lines[place]]


def _cells(line: str, divider: str) -> list[str]:
    """The trimmed cells of a record."""
    quoted = line.count('"') % 2 == 0
    try:
        [cells] = csv.reader([line], delimiter=divider, skipinitialspace=True, quotechar='"' if quoted else None)
    except (csv.Error, ValueError):  # a cell that is too long, or lines that belong to no quotes
        cells = line.split(divider)
    return [cell.strip() for cell in cells]


def _is_prose(cells: list[str]) -> bool:
    """Whether a line reads as a sentence and not as a row of values."""
    longest = max(len(_WORD.findall(cell)) for cell in cells)
    if _SENTENCE_END.search(cells[-1]):
        return longest > 1
    return longest > (3 if len(cells) == 1 else 6)
