"""One engine for each set of settings in a process, however many front-end objects ask for it."""

from __future__ import annotations

import os
import threading
from typing import Any

from chatlocal.engine.engine import Engine

_Key = tuple[str, ...]

_lock = threading.Lock()
_engines: dict[_Key, Engine] = {}
_loading: dict[_Key, threading.Lock] = {}


def shared_engine(model: str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """The process's engine for these settings, loaded at the first call; arguments as in Engine.load.

    Engines stay until they are closed: a closed one, or one that died, is replaced at the next call. Threads that ask
    at the same time wait for one load. A forked child loads its own.
    """
    key = _key(model, options)
    with _lock:
        engine = _engines.get(key)
        if engine is not None and not engine.closed:
            return engine
        loading = _loading.setdefault(key, threading.Lock())
    with loading:
        with _lock:
            engine = _engines.get(key)
        if engine is None or engine.closed:
            engine = Engine.load(model, **options)
            with _lock:
                _engines[key] = engine
        return engine


def _key(model: str | os.PathLike[str] | None, options: dict[str, Any]) -> _Key:
    """Settings as text: torch.bfloat16 and "bfloat16", or a path and its text, are the same."""
    set_options = sorted((name, value) for name, value in options.items() if value is not None)
    name = "" if model is None else f"model={os.fspath(model)}"
    return (name, *(f"{name}={str(value).removeprefix('torch.')}" for name, value in set_options))


def _forget() -> None:
    """In a forked child: the parent's threads were not copied, nor will its locks be released."""
    global _lock
    _lock = threading.Lock()
    _engines.clear()
    _loading.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
