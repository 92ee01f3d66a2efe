"""The grammar backends: every module here that has a BACKEND, found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from chatlocal.engine.constraints.protocol import GrammarBackend
from chatlocal.engine.errors import UnsupportedInput


@cache
def backends() -> dict[str, GrammarBackend]:
    """All backends by name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    found = (module.BACKEND for module in modules)
    return {backend.name: backend for backend in found}


def candidates(kind: str, name: str) -> list[GrammarBackend]:
    """The backends to try for a kind of spec, the best first; "auto" means any. UnsupportedInput when none can."""
    able = [backend for backend in backends().values() if kind in backend.kinds]
    if name == "auto":
        return sorted(able, key=lambda backend: backend.kinds.index(kind))
    if name not in backends():
        raise UnsupportedInput(f"Unknown grammar backend {name!r}: use auto, {', '.join(sorted(backends()))}.")
    if not any(backend.name == name for backend in able):
        can = ", ".join(backend.name for backend in able)
        raise UnsupportedInput(f"The {name} backend cannot do {kind!r} constraints: use auto or {can}.")
    return [backends()[name]]
