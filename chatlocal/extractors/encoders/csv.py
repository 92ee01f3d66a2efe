"""CSV with a header and `|` between columns: a table, one row a record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints import Spec, marked
from chatlocal.extractors.encoders.csv_table import Table, read_table
from chatlocal.extractors.encoders.encoder import (
    Encoder,
    ParseError,
    ReadInPart,
    UnsupportedNode,
    fenced_parts,
    tagged_parts,
)
from chatlocal.extractors.nodes import Bool, Dictionary, Node, Number, Object, Selection

DELIMITER = "|"
# What a grammar allows at most: rows of a table, characters of a cell, digits before and behind the point.
MOST_ROWS = 100
LONGEST_CELL = 200
_NUMBER = r"-?(0|[1-9][0-9]{0,14})"


@dataclass
class CSVEncoder(Encoder):
    """UnsupportedNode for an Object that has lists, objects or dictionaries in it: a cell holds one value."""

    node: Object
    use_tags: bool = False

    always_rows = True

    def __post_init__(self) -> None:
        for attribute in self.node.attributes:
            if attribute.many or isinstance(attribute, (Object, Dictionary)):
                kind = "a list" if attribute.many else f"of the kind {type(attribute).__name__}"
                raise UnsupportedNode(
                    f"A cell of CSV holds one value, and {attribute.id!r} is {kind}: use json or xml."
                )

    def encode(self, data: dict[str, Any]) -> str:
        rows = data.get(self.node.id, [])
        ids = [attribute.id for attribute in self.node.attributes]
        records = rows if isinstance(rows, list) else [rows]
        table = "".join(_line([record.get(id) for id in ids]) for record in records)
        return self._wrapped(_line(ids) + table)

    def decode(self, text: str) -> dict[str, list[dict[str, Any]]]:
        """Rows that cannot be read are named by ReadInPart."""
        candidates = [*tagged_parts(text, "csv"), *fenced_parts(text), re.split(r"</csv\s*>", text, flags=re.I)[0]]
        for part in candidates:
            table = read_table(part, self.node, DELIMITER)
            if table is not None:
                return self._data(table, text)
        if not text.strip():
            raise ParseError("The answer is empty.", text)
        raise ParseError("There is no table in the answer that can be read: no line has the names of columns.", text)

    def get_instruction_segment(self) -> str:
        wrapped = " Put a <csv> tag in front of the table and a </csv> tag behind it." if self.use_tags else ""
        return (
            f"Write what you find as a table in CSV, with {DELIMITER} between columns. The first line names the columns"
            " as they are named above, and each line below it is one record; leave a cell empty where the text does not"
            f" say. Write nothing else: no explanation, no other columns.{wrapped}"
        )

    def spec(self) -> Spec:
        header = _line([attribute.id for attribute in self.node.attributes])
        cells = [self._cell(attribute) for attribute in self.node.attributes]
        delimiter = f" {json.dumps(DELIMITER)} "
        rows = f"row{{0,{MOST_ROWS}}}" if self.node.many else "row"
        opening, closing = self._wrapped("\0").split("\0")
        whole = [json.dumps(opening + header, ensure_ascii=False), rows, *([json.dumps(closing)] if closing else [])]
        rules = [
            f"start: {' '.join(whole)}",
            f"row: {delimiter.join(f'cell_{place}' for place in range(len(cells)))} {json.dumps(chr(10))}",
            *(f"cell_{place}: {cell}" for place, cell in enumerate(cells)),
            # Without what would be read as the end of a cell or of the table.
            rf'PLAIN: /[^|"<\x00-\x1f `:-][^|"<\x00-\x1f]{{0,{LONGEST_CELL - 1}}}/',
            f'QUOTED: /"([^"<\\x00-\\x1f]|""){{1,{LONGEST_CELL}}}"/',
        ]
        return marked("\n".join(rules), {}, {}, closings=self._ways_out(closing))

    def _ways_out(self, closing: str) -> list[str]:
        """What ends the table behind each cell, the shortest way first; behind the quotes of one too."""
        ways = ["\n" + closing]
        for attribute in reversed(self.node.attributes):
            ways.append(f"{DELIMITER}{self._shortest(attribute)}{ways[-1]}")
        whole = ways.pop().removeprefix(DELIMITER)
        return [*([closing] if closing else []), *ways, *(f'"{way}' for way in ways), whole]

    def _shortest(self, node: Node) -> str:
        """A short text of a cell."""
        if not node.required and len(self.node.attributes) > 1:
            return ""
        if isinstance(node, Selection):
            return min((_written(option.means) for option in node.options), key=len)
        return {Number: "0", Bool: "True"}.get(type(node), "?")

    def _cell(self, node: Node) -> str:
        """The texts of a cell. A table of one column has no empty cells: they would be empty lines."""
        empty = "" if node.required or len(self.node.attributes) == 1 else ' | ""'
        if isinstance(node, Selection):
            return " | ".join(json.dumps(_written(option.means), ensure_ascii=False) for option in node.options) + empty
        if isinstance(node, Bool):
            return f'"True" | "False"{empty}'
        if isinstance(node, Number):
            return f"/{_NUMBER}{'' if node.whole else '([.][0-9]{1,8})?'}/{empty}"
        return f"PLAIN | QUOTED{empty}"

    def _wrapped(self, table: str) -> str:
        return f"<csv>{table}</csv>" if self.use_tags else table

    def _data(self, table: Table, text: str) -> dict[str, list[dict[str, Any]]]:
        data = {self.node.id: table.rows}
        if table.problems:
            raise ReadInPart(data, table.problems, text)
        return data


def _line(values: list[Any]) -> str:
    return DELIMITER.join(_written(value) for value in values) + "\n"


def _written(value: Any) -> str:
    """A cell, in quotes where it would not be read back otherwise."""
    text = "" if value is None else str(value)
    if any(mark in text for mark in (DELIMITER, '"', "\n", "\r")) or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
