"""Sides in processes of their own, so that no side leaves memory, threads or a patched model to another one."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

# What every side imports anyway: a fork server has it once. Nothing of ours is here, and nothing that starts threads.
_PRELOADED = ["torch", "transformers", "transformers.generation", "transformers.models.auto.modeling_auto"]


class Unavailable(Exception):
    """A side that cannot be measured, and why: it is not installed, or it does not run here."""


class Child:
    """An object in another process: `Child(make, *arguments)` makes it there, `call` calls its methods.

    `fresh`: a new interpreter, which owes nothing to a fork; for measurements of memory.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, fresh: bool = False, **options: Any) -> None:
        context: Any = multiprocessing.get_context("spawn")
        if not fresh and "forkserver" in multiprocessing.get_all_start_methods():
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(_PRELOADED)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments, options), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What the method returns. Unavailable when it, or the making of the object, failed."""
        if not self._ready:
            self._receive()
            self._ready = True
        self._pipe.send((method, arguments, options))
        return self._receive()

    def close(self) -> None:
        """End the process: kindly, so that it gives back what the system keeps for it, or else by force."""
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self) -> Any:
        try:
            fine, answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise Unavailable(f"its process ended with {self._process.exitcode}") from None
        if not fine:
            raise Unavailable(answer)
        return answer


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    import torch
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    # A fork leaves torch's thread pool broken until the count is set.
    torch.set_num_threads(torch.get_num_threads())
    with suppress(EOFError, KeyboardInterrupt):  # the parent needs it no more
        made = _answer(pipe, make, arguments, options, send=False)
        while made is not None:
            method, arguments, options = pipe.recv()
            _answer(pipe, getattr(made, method), arguments, options)


def _answer(
    pipe: Connection, call: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], send: bool = True
) -> Any:
    try:
        answer = call(*arguments, **options)
        pipe.send((True, answer if send else None))
        return answer
    except ModuleNotFoundError as problem:
        pipe.send((False, f"not installed ({problem.name})"))
    except Exception as problem:
        traceback.print_exc(file=sys.stderr)
        pipe.send((False, f"{type(problem).__name__}: {problem}".split("\n")[0][:300]))
    return None


class Sides:
    """Sides by name that are measured in turn. Those that cannot be measured are in `missing`, with the reason.

    A side is anything with `call` and `close`; a context manager that ends them.
    """

    def __init__(self, sides: Mapping[str, Any]) -> None:
        self.live = dict(sides)
        self.missing: dict[str, str] = {}

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *exception: object) -> None:
        for side in self.live.values():
            side.close()

    def call(self, name: str, method: str, *arguments: Any, **options: Any) -> Any:
        """What the side answers, None when it is missing."""
        if name not in self.live:
            return None
        try:
            return self.live[name].call(method, *arguments, **options)
        except Unavailable as problem:
            self.missing[name] = str(problem)
            self.live.pop(name).close()
            return None
