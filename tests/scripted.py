"""A backend that replays given ids, and an engine over it: everything above the seam can be tested without a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from chatlocal.engine.engine import Engine
from chatlocal.engine.runtime.backend import Done, IdLogprob, Request, TokenEvent, Tokens
from tests.tiny import tiny_tokenizer

Script = Iterable[int] | Callable[[Request], Iterable[int]]


class ScriptedBackend:
    """Replays ids, one a step, until an end id of the request, its max_tokens, or the end of the script.

    `scripts` are used in turn and the last one again and again; each is ids or a function from the Request to ids.
    `delay` is seconds before each id; after `fail_after` ids a RuntimeError is raised.
    Counters: `steps` (ids made, all requests), `running` (requests begun and not over), `closed` (requests whose
    iterator was closed before its Done). `requests` keeps what was submitted.
    """

    def __init__(self, *scripts: Script, delay: float = 0.0, fail_after: int | None = None) -> None:
        self._scripts = scripts
        self._delay = delay
        self._fail_after = fail_after
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.steps = 0
        self.running = 0
        self.closed = 0

    def submit(self, request: Request) -> Iterator[TokenEvent]:
        with self._lock:
            script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
            self.requests.append(request)
        return self._replay(request, script(request) if callable(script) else script)

    def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """-0.5 for each id, as the ids of a script have it."""
        return [-0.5 * len(ids) for ids in continuations]

    def _replay(self, request: Request, ids: Iterable[int]) -> Iterator[TokenEvent]:
        self._count(running=1)
        try:
            for made, new in enumerate(ids):
                if made == self._fail_after:
                    raise RuntimeError("the script fails here")
                if made == request.sampling.max_tokens:
                    yield Done("length")
                    return
                time.sleep(self._delay)
                self._count(steps=1)
                if new in request.stop_ids:
                    yield Done("stop", new)
                    return
                yield Tokens((new,), _logprobs(new, request.logprobs))
            yield Done("stop")
        except GeneratorExit:
            self._count(closed=1)
            raise
        finally:
            self._count(running=-1)

    def _count(self, **changes: int) -> None:
        with self._lock:
            for name, change in changes.items():
                setattr(self, name, getattr(self, name) + change)


def _logprobs(id: int, top: int | None) -> tuple[IdLogprob, ...]:
    """-0.5 for the id of the script; its alternatives are the following ids, each one less likely by 1."""
    if top is None:
        return ()
    return (IdLogprob(id, -0.5, tuple((id + rank, -0.5 - rank) for rank in range(top))),)


def spell(text: str, tokenizer: Any = None) -> tuple[int, ...]:
    """The ids of a text in the tiny tokenizer (or another), without any special token added."""
    return tuple((tokenizer or tiny_tokenizer()).encode(text, add_special_tokens=False))


def scripted_engine(
    *answers: str | Script,
    delay: float = 0.0,
    fail_after: int | None = None,
    context_length: int = 512,
    **options: Any,
) -> Engine:
    """An engine with the tiny tokenizer that gives these answers in turn (texts or scripts of ids), the last for ever.

    Its backend, with the counters, is `engine.backend`. `options` go to Engine.
    """
    scripts = [spell(answer) if isinstance(answer, str) else answer for answer in answers]
    backend = ScriptedBackend(*scripts, delay=delay, fail_after=fail_after)
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = context_length
    return Engine(None, tokenizer, backend=backend, **options)


def backend_of(engine: Engine) -> ScriptedBackend:
    """The scripted backend behind an engine that `scripted_engine` made."""
    assert isinstance(engine.backend, ScriptedBackend)
    return engine.backend
