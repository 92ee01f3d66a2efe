"""What a person at a terminal sees while a model loads, and the silence everywhere else."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


def shown(progress: bool | None) -> bool:
    """Whether to show progress; None means: when stderr is a terminal."""
    if progress is not None:
        return progress
    return sys.stderr is not None and sys.stderr.isatty()


class Stages:
    """One bar for work of several kinds, drawn every second so that its clock runs through long stages."""

    def __init__(self, show: bool, title: str) -> None:
        self._title = title
        self._start = self._share = 0.0
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._run_clock, name="chatlocal-progress", daemon=True)
        self._bar: tqdm[Any] = tqdm(
            total=100,
            desc=title,
            disable=not show,
            leave=False,
            bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}",
        )

    def __enter__(self) -> Stages:
        if not self._bar.disable:
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._clock.is_alive():
            self._clock.join()
        self._bar.close()

    def _run_clock(self) -> None:
        while not self._over.wait(1.0):
            self._bar.refresh()

    def stage(self, name: str, share: float) -> None:
        """Finish the stage before and begin this one, which is expected to take `share` of the whole."""
        self._start, self._share = self._start + self._share, share
        self._bar.set_description_str(f"{self._title}: {name}", refresh=False)
        self.part(0.0)

    def part(self, done: float) -> None:
        """How much of the current stage is done, 0 to 1."""
        self._bar.n = 100 * (self._start + self._share * min(done, 1.0))
        self._bar.refresh()


_lock = threading.Lock()
_silent = 0  # how many loads in this process want silence now
_restore: Callable[[], None] | None = None


@contextmanager
def quiet(show: bool = False) -> Iterator[None]:
    """Keep the libraries' bars and warnings off while inside, unless `show`.

    Their switches are global, so loads on several threads count themselves in and out: the first one in remembers the
    user's settings, the last one out restores them.
    """
    global _silent, _restore
    if show:
        yield
        return
    with _lock:
        if _silent == 0:
            _restore = _silence()
        _silent += 1
    try:
        yield
    finally:
        with _lock:
            _silent -= 1
            if _silent == 0 and _restore is not None:
                _restore()
                _restore = None


def _silence() -> Callable[[], None]:
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging as transformers_logging

    gguf_reading: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    levels = transformers_logging.get_verbosity(), hub_logging.get_verbosity()
    # A hook rather than transformers' own switch, which flips huggingface_hub's too and warns when the environment
    # has a say in that one. The bar over a GGUF file's tensors heeds neither.
    hook = transformers_logging.set_tqdm_hook(lambda _, args, kwargs: _silent_bar(*args, **kwargs))
    gguf_bar = gguf_reading.tqdm
    gguf_reading.tqdm = _silent_bar
    transformers_logging.set_verbosity(logging.ERROR)
    hub_logging.set_verbosity(logging.ERROR)

    def restore() -> None:
        transformers_logging.set_tqdm_hook(hook)
        gguf_reading.tqdm = gguf_bar
        transformers_logging.set_verbosity(levels[0])
        hub_logging.set_verbosity(levels[1])

    return restore


def _silent_bar(*args: Any, **kwargs: Any) -> Any:
    return tqdm(*args, **{**kwargs, "disable": True})
