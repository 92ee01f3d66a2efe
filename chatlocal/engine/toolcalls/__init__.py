"""Formats of tool calls: one file each, found by being there. A module with a tuple FORMATS adds those."""

from __future__ import annotations

import difflib
import pkgutil
from functools import cache
from importlib import import_module

from chatlocal.engine.toolcalls.format import CallParser, Parsed, ToolFormat, Tools

__all__ = ["CallParser", "Parsed", "ToolFormat", "Tools", "get", "names"]


def names() -> tuple[str, ...]:
    """The names of the formats, sorted."""
    return tuple(sorted(_registry()))


def get(name: str) -> ToolFormat:
    """The format of this name. KeyError names the near ones."""
    formats = _registry()
    if name not in formats:
        near = difflib.get_close_matches(name, formats, cutoff=0.4) or sorted(formats)
        raise KeyError(f"There is no tool-call format {name!r}; near ones: {', '.join(near)}.")
    return formats[name]


@cache
def _registry() -> dict[str, ToolFormat]:
    modules = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {format.name: format for module in modules for format in getattr(module, "FORMATS", ())}
