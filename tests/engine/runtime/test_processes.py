"""Interpreter exit and fork with requests under way. Each test runs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import save_tiny

ROOT = Path(__file__).parents[3]

BEGINNING = """
import asyncio, contextlib, os, sys, threading
import torch
torch.set_num_threads(1)
from chatlocal.engine import shared
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import EngineClosed
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.written_prompt import written_prompt
from tests.scripted import scripted_engine
from tests.tiny import tiny_model, tiny_tokenizer

LONG = Sampling(max_tokens=100_000, temperature=1.0, seed=1)
# No chat template: what ends a turn would end these answers, sooner or later.
HELLO = written_prompt("hello", tiny_tokenizer())

def endless():
    model, tokenizer = tiny_model(max_position_embeddings=200_000), tiny_tokenizer()
    model.generation_config.eos_token_id = None
    tokenizer.eos_token_id = None
    return Engine(model, tokenizer)
"""

IN_FLIGHT = """
kept = []

engine = endless()
kept += [engine, engine.stream(HELLO, sampling=LONG)]
next(kept[-1])

# One request runs and one waits, read by threads that will not outlive the exit.
busy = Engine(endless().model, tiny_tokenizer(), max_batch=1)
begun = threading.Event()
def read():
    with contextlib.suppress(EngineClosed):
        for event in busy.stream(HELLO, sampling=LONG):
            begun.set()
for _ in range(2):
    threading.Thread(target=read, daemon=True).start()
begun.wait()

# An event loop that leaves a stream behind, and one whose stream hangs in a backend that only blocks.
def stuck(request):
    yield 5
    threading.Event().wait()
blocking = scripted_engine(stuck)
async def leave(engine, timeout):
    stream = engine.astream(HELLO, sampling=LONG)
    kept.append(stream)
    await anext(stream)
    if timeout:
        await asyncio.wait_for(anext(stream), timeout)
loop = asyncio.new_event_loop()
loop.run_until_complete(leave(engine, None))
loop.close()
asyncio.run(leave(engine, None))
try:
    asyncio.run(leave(blocking, 0.05))
except asyncio.TimeoutError:
    kept.append("timed out")
assert kept[-1] == "timed out"
assert engine.stats()["running"] >= 1
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGINNING + script, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_the_interpreter_ends_by_itself_and_in_silence() -> None:
    ended = run(IN_FLIGHT)
    assert ended.stdout + ended.stderr == ""  # first, for what it says of a failure
    assert ended.returncode == 0


FORK = """
engine = endless()
stream = engine.stream(HELLO, sampling=LONG)
first = next(stream)
token_stream = engine.backend.submit(Request((5, 6)))

# Locks that the child will find held, whatever the moment of the fork.
token_stream._channel._changed.acquire()
engine.backend._scheduler._ends.acquire()
shared._lock.acquire()
child = os.fork()
if child == 0:
    status = 0
    try:
        for call in (
            lambda: next(engine.stream(HELLO)),
            lambda: next(stream),
            lambda: next(token_stream),
            lambda: engine.backend.score((5,), [(6,)]),
        ):
            try:
                call()
                status = 1
            except EngineClosed as error:
                assert "fork" in str(error)
        token_stream.close()
        stream.close()
        engine.stats()
        engine.close()
        own = shared.shared_engine(sys.argv[1], progress=False)
        assert own.generate(HELLO, sampling=Sampling(max_tokens=3)).finish.usage.completion <= 3
    except BaseException as error:
        print(repr(error), repr(error.__cause__), flush=True)
        status = 2
    # A normal exit, with everything that is registered for it.
    sys.exit(status)
token_stream._channel._changed.release()
engine.backend._scheduler._ends.release()
shared._lock.release()
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert len([next(stream) for _ in range(5)]) == 5
engine.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_is_told_and_the_parent_goes_on(tmp_path: Path) -> None:
    ended = run(FORK, str(save_tiny(tmp_path)))
    assert ended.stdout + ended.stderr == ""  # first, for what it says of a failure
    assert ended.returncode == 0


PARALLEL_FORK = """
torch.set_num_threads(2)
numbers = torch.randn(1000, 1000)
numbers @ numbers  # from here on this thread has helpers
child = os.fork()
if child == 0:
    engine = Engine.load(sys.argv[1], progress=False)
    sys.exit(engine.generate(HELLO, sampling=Sampling(max_tokens=3)).finish.usage.completion > 3)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_of_a_process_that_computed_in_parallel_loads_its_own(tmp_path: Path) -> None:
    ended = run(PARALLEL_FORK, str(save_tiny(tmp_path, hidden_size=512, intermediate_size=1024)))
    assert ended.stdout + ended.stderr == ""
    assert ended.returncode == 0
