"""Getting structured records out of text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlocal.extractors.document_run import extract_documents as extract_documents
    from chatlocal.extractors.extractor import Extractor as Extractor
    from chatlocal.extractors.kor_chain import create_extraction_chain as create_extraction_chain
    from chatlocal.extractors.kor_documents import extract_from_documents as extract_from_documents
    from chatlocal.extractors.nodes import Bool as Bool
    from chatlocal.extractors.nodes import Number as Number
    from chatlocal.extractors.nodes import Object as Object
    from chatlocal.extractors.nodes import Option as Option
    from chatlocal.extractors.nodes import Selection as Selection
    from chatlocal.extractors.nodes import Text as Text
    from chatlocal.extractors.pydantic_nodes import from_pydantic as from_pydantic
    from chatlocal.extractors.readers import DocumentFiles as DocumentFiles
    from chatlocal.extractors.report import write_report as write_report
    from chatlocal.extractors.structured_output import create_structured_output_chain as create_structured_output_chain

_HOMES = {
    "Bool": "chatlocal.extractors.nodes",
    "DocumentFiles": "chatlocal.extractors.readers",
    "Extractor": "chatlocal.extractors.extractor",
    "Number": "chatlocal.extractors.nodes",
    "Object": "chatlocal.extractors.nodes",
    "Option": "chatlocal.extractors.nodes",
    "Selection": "chatlocal.extractors.nodes",
    "Text": "chatlocal.extractors.nodes",
    "create_extraction_chain": "chatlocal.extractors.kor_chain",
    "create_structured_output_chain": "chatlocal.extractors.structured_output",
    "extract_documents": "chatlocal.extractors.document_run",
    "extract_from_documents": "chatlocal.extractors.kor_documents",
    "from_pydantic": "chatlocal.extractors.pydantic_nodes",
    "write_report": "chatlocal.extractors.report",
}

__all__ = [
    "Bool",
    "DocumentFiles",
    "Extractor",
    "Number",
    "Object",
    "Option",
    "Selection",
    "Text",
    "create_extraction_chain",
    "create_structured_output_chain",
    "extract_documents",
    "extract_from_documents",
    "from_pydantic",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
