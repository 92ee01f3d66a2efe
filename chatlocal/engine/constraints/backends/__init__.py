"""The grammar backends: every module here that has a BACKEND, found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from chatlocal.engine.constraints.protocol import Grammar, GrammarBackend, Tokens, TooComplex
from chatlocal.engine.constraints.spec import Spec
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


def build(spec: Spec, tokens: Tokens, name: str = "auto") -> Grammar:
    """Compile a spec with the best backend for it, or with the one of this name; errors as in `candidates`."""
    *others, last = candidates(spec.kind, name)
    for backend in others:
        try:
            return backend.build(spec, tokens)
        except TooComplex:
            continue  # the next one has other limits
    return last.build(spec, tokens)
