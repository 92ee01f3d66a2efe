"""A report as one HTML file: texts with their values marked, a table of the values, and what failed.

The page fetches nothing and runs nothing but its own script, which its content security policy names by hash. Texts,
ids and values come as JSON in which no "<" stands, and the script puts them into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from chatlocal.extractors.results import Extraction
from chatlocal.extractors.results_json import dump, failure_json, record_json


def write_report(
    path: str | os.PathLike[str],
    extractions: Iterable[Extraction],
    texts: Mapping[str, str],
    *,
    title: str = "Extraction",
) -> None:
    """Write the page of these extractions to a file; `texts` are the documents' texts by id.

    A document that is not in `texts` could not be read: its failures are shown and no text.
    """
    Path(path).write_text(report(extractions, texts, title=title), encoding="utf-8", newline="")


def report(extractions: Iterable[Extraction], texts: Mapping[str, str], *, title: str = "Extraction") -> str:
    """The page as HTML."""
    documents = [_document(one, texts.get(one.document or "", "")) for one in extractions]
    folder = files("chatlocal.extractors") / "report_page"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    parts = {
        "title": html.escape(title),
        "style": style,
        "style hash": _hash(style),
        "script": script,
        "script hash": _hash(script),
        "data": _inside_html(dump({"documents": documents})),
    }
    page = (folder / "page.html").read_text(encoding="utf-8")
    # In one go: what is put in is not looked at again, whatever it holds.
    return re.sub(r"\{\{([a-z ]+)\}\}", lambda found: parts[found[1]], page)


def _hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def _inside_html(json_text: str) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or begins a comment."""
    return json_text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _document(extraction: Extraction, text: str) -> dict[str, Any]:
    at = _utf16(text)
    records = []
    for record in map(record_json, extraction.records):
        fields = [
            {**one, "start": at(one["start"]), "end": at(one["end"])} if "start" in one else one
            for one in record["fields"]
        ]
        records.append({"kind": record["kind"], "fields": fields})
    return {
        "id": extraction.document or "",
        "text": text,
        "records": records,
        "failures": [failure_json(one) for one in extraction.failures],
    }


def _utf16(text: str) -> Callable[[int], int]:
    """From offsets in characters to offsets in UTF-16 units, in which a browser counts."""
    wide = [at for at, sign in enumerate(text) if ord(sign) > 0xFFFF]
    return lambda at: at + bisect_left(wide, at)
