"""Getting structured records out of text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlocal.extractors.extractor import Extractor as Extractor
    from chatlocal.extractors.structured_output import create_structured_output_chain as create_structured_output_chain

_HOMES = {
    "Extractor": "chatlocal.extractors.extractor",
    "create_structured_output_chain": "chatlocal.extractors.structured_output",
}

__all__ = ["Extractor", "create_structured_output_chain"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
