"""One engine for each set of settings in a process, however many front-end objects ask for it."""

from __future__ import annotations

import os
import threading
from typing import Any

from chatlocal.engine.engine import Engine

_lock = threading.Lock()
_engines: dict[tuple[Any, ...], Engine] = {}
_loading: dict[tuple[Any, ...], threading.Lock] = {}


def shared_engine(model: str | None = None, **options: Any) -> Engine:
    """The process's engine for these settings, loaded at the first call; arguments as in Engine.load.

    Engines stay until they are closed: a closed one is replaced at the next call. Threads that ask at the same time
    wait for one load. A forked child loads its own.
    """
    key = (os.getpid(), model, *sorted((name, str(value)) for name, value in options.items() if value is not None))
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
