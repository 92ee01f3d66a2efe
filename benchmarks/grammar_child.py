"""An engine in a process of its own, which can be killed: a compiler may want all the time and memory there is."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from grammar_samples import Document, Sample

# A schema for what an engine does once for a tokenizer.
FIRST = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
# Seconds to import the engine and to read the tokenizer.
SET_UP_LIMIT = 300


@dataclass(frozen=True)
class Walked:
    """What one document's walk came to.

    `masks` are the CPU seconds of each mask (valid documents only), `forced` how many of the text's bytes were named
    as forced (None: the engine does not say), `failure` why the engine could not go on.
    """

    accepted: bool
    masks: tuple[float, ...] = ()
    forced: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class Measured:
    """What a schema came to. `seconds` is the CPU time of the compilation and the first mask.

    `walks` has one entry for each document up to the one whose walk ran out of time, if one did.
    """

    status: Literal["accepted", "refused", "timed out", "died"]
    detail: str = ""
    seconds: float = 0.0
    left: frozenset[str] = frozenset()
    walks: tuple[Walked, ...] = field(default=(), repr=False)


class Child:
    """One engine's process, started again after it had to be killed. `set_up` is the CPU seconds until it was ready."""

    def __init__(self, name: str, tokenizer: Path, limit: float, memory: float) -> None:
        self._arguments = (name, tokenizer, memory)
        self._limit = limit
        self._start()

    def measure(self, sample: Sample) -> Measured:
        """Compile a schema and walk its documents."""
        self._pipe.send((sample.schema, sample.documents))
        first = self._receive(self._limit)
        if not isinstance(first, Measured):
            return Measured(first)
        walks: list[Walked] = []
        while first.status == "accepted" and len(walks) < len(sample.documents):
            walked = self._receive(self._limit)
            if not isinstance(walked, Walked):
                return Measured("accepted", f"a walk: {walked}", first.seconds, first.left, tuple(walks))
            walks.append(walked)
        return Measured(first.status, first.detail, first.seconds, first.left, tuple(walks))

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(SET_UP_LIMIT):
            raise TimeoutError(f"{self._arguments[0]} was not ready in {SET_UP_LIMIT} s")
        self.set_up: float = self._pipe.recv()

    def _receive(self, limit: float) -> Any:
        """What the child sends, or why it sends nothing any more; then there is a new child."""
        try:
            if self._pipe.poll(limit):
                return self._pipe.recv()
            ended: Literal["timed out", "died"] = "timed out"
        except (EOFError, OSError):  # an engine that gets no memory ends its process
            ended = "died"
        self.close()
        self._start()
        return ended


def serve(pipe: Connection, name: str, tokenizer: Path, memory: float) -> None:
    """The child's side: answers each schema with a Measured without walks, then a Walked for each document."""
    os.environ.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    import torch
    from grammar_peers import ENGINES
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    limit_memory(memory)
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    start = cpu_seconds()
    engine = ENGINES[name](loaded)
    engine(FIRST).start().mask()
    pipe.send(cpu_seconds() - start)
    while True:
        schema, documents = pipe.recv()
        start = cpu_seconds()
        try:
            compiled = engine(schema)
            compiled.start().mask()
        except MemoryError:
            pipe.send(Measured("died"))
        except Exception as error:
            pipe.send(Measured("refused", f"{type(error).__name__}: {error}"[:500]))
        else:
            pipe.send(Measured("accepted", seconds=cpu_seconds() - start, left=compiled.left))
            for document in documents:
                pipe.send(walk(compiled, document))


def limit_memory(gigabytes: float) -> None:
    if sys.platform != "win32":
        import resource

        size = int(gigabytes * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def walk(compiled: Any, document: Document) -> Walked:
    masks: list[float] = []
    try:
        state = compiled.start()
        for id in document.ids:
            if document.valid:
                masks.append(timed_mask(state))
            if not state.advance(id):
                return Walked(False, tuple(masks))
        if document.valid:
            masks.append(timed_mask(state))
        if not state.may_end():
            return Walked(False, tuple(masks))
        return Walked(True, tuple(masks), forced_bytes(compiled.start(), document) if document.valid else None)
    except Exception as error:
        return Walked(False, tuple(masks), failure=f"{type(error).__name__}: {error}"[:500])


def timed_mask(state: Any) -> float:
    start = time.process_time()
    state.mask()
    return max(0.0, time.process_time() - start - clock_seconds())


@cache
def clock_seconds() -> float:
    """What reading the clock costs by itself, about a microsecond."""
    return statistics.median(-time.process_time() + time.process_time() for _ in range(1000))


def cpu_seconds() -> float:
    """The CPU time of this process so far, and of those that it started and that have ended."""
    if sys.platform == "win32":
        return time.process_time()
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def forced_bytes(state: Any, document: Document) -> int | None:
    """How many of the text's bytes the engine named before they came. A walk of its own, as the question may warm."""
    place = known = forced = 0
    for id, piece in zip(document.ids, document.pieces, strict=True):
        named = state.forced()
        if named is None:
            return None
        reach = max(known, place + len(named))
        forced += reach - max(known, place)
        known, place = reach, place + len(piece)
        state.advance(id)
    return forced
