"""Getting structured records out of text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlocal.extractors.document_run import extract_documents as extract_documents
    from chatlocal.extractors.extractor import Extractor as Extractor
    from chatlocal.extractors.readers import DocumentFiles as DocumentFiles
    from chatlocal.extractors.report import write_report as write_report
    from chatlocal.extractors.structured_output import create_structured_output_chain as create_structured_output_chain

_HOMES = {
    "DocumentFiles": "chatlocal.extractors.readers",
    "Extractor": "chatlocal.extractors.extractor",
    "create_structured_output_chain": "chatlocal.extractors.structured_output",
    "extract_documents": "chatlocal.extractors.document_run",
    "write_report": "chatlocal.extractors.report",
}

__all__ = ["DocumentFiles", "Extractor", "create_structured_output_chain", "extract_documents", "write_report"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
