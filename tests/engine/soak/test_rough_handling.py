"""Engines that are closed in the middle, asked for too much, interrupted or side by side: nothing hangs or is mixed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import EngineBusy, EngineClosed, EngineDied
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import native
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.packed_runner import PackedRunner
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.architectures import SIZES, architecture
from tests.engine.runtime.fixed_costs import fix_costs, free
from tests.engine.runtime.running import (
    generated,
    ids_of,
    prompt,
    request,
    run_alone,
    run_together,
    scheduler_threads,
    tiny_backend,
    wait_for,
)
from tests.engine.soak.models import model_of, tokenizer
from tests.engine.soak.recipes import Scale, recipes
from tests.engine.soak.traffic import THREADS, Order, run_one
from tests.tiny import tiny_model, tiny_tokenizer

ENDLESS = 100_000
ROOT = Path(__file__).parents[3]
TINY = Scale(context=1024, vocabulary=500, cache_tokens=1100, stop_ids=frozenset({2}), prompt=120, answer=20)

KINDS = pytest.mark.parametrize("kind", ["packed", "slots", "one by one"])


def idle(backend: TorchBackend) -> None:
    wait_for(lambda: backend.stats()["running"] + backend.stats()["waiting"] == 0, "nothing runs")


# closing


@KINDS
def test_an_engine_closed_in_the_middle_ends_every_request(kind: str) -> None:
    before = set(threading.enumerate())
    engine = Engine(model_of(kind), tokenizer(), cache_tokens=1100)
    made = [recipe for recipe in recipes(78, TINY) if recipe.refused is None]
    done: list[str] = []
    enough = threading.Event()

    def thread(lane: int) -> None:
        for recipe in made[lane::THREADS] * 20:
            try:
                done.append(run_one(engine, Order(recipe, in_loop=False)).end)
            except EngineClosed:
                done.append("closed")
            if len(done) == 60:
                enough.set()
            if done[-1] == "closed":
                return

    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(thread, lane) for lane in range(THREADS)]
        enough.wait(120)
        engine.close()
        for one in running:
            one.result(120)
    ends = Counter(done)
    assert ends["closed"] == THREADS
    assert set(ends) <= {"stop", "length", "tool_calls", "closed"}
    assert len(done) > 60
    assert set(threading.enumerate()) <= before


def test_engines_that_come_and_go_leave_no_thread_behind() -> None:
    before = len(scheduler_threads())
    model = model_of("slots")
    for number in range(20):
        engine = Engine(model, tokenizer())
        streams = [engine.backend.submit(request(prompt(9, number + one), new=ENDLESS)) for one in range(3)]
        next(iter(streams[0]))
        if number % 2:
            engine.close()
        del engine, streams
    wait_for(lambda: len(scheduler_threads()) == before, "their threads end")


# too much


@KINDS
def test_under_load_no_more_wait_than_may(kind: str) -> None:
    """Threads submit as fast as they can; some go away. Afterwards as many are let in as at first."""
    with tiny_backend(model_of(kind), max_batch=3, max_waiting=4) as backend:
        most = threading.Lock(), [0]

        def thread(lane: int) -> Counter[str]:
            ends: Counter[str] = Counter()
            for number in range(20):
                asked = request(prompt(5 + lane, number), new=1 + number % 5, temperature=1.0, seed=lane)
                try:
                    stream = backend.submit(asked)
                except EngineBusy:
                    ends["busy"] += 1
                    continue
                with most[0]:
                    most[1][0] = max(most[1][0], backend.stats()["waiting"])
                if number % 4 == 3:
                    stream.close()
                    ends["left"] += 1
                else:
                    assert len(ids_of(stream)) == 1 + number % 5
                    ends["read"] += 1
            return ends

        with ThreadPoolExecutor(16) as pool:
            ends = sum(pool.map(thread, range(16)), Counter())
        assert sum(ends.values()) == 16 * 20
        assert ends["busy"] > 0
        assert ends["read"] > 0
        assert most[1][0] <= 3 + 4  # those that are about to run are among them
        idle(backend)
        stats = backend.stats()
        assert stats["finished"] + stats["cancelled"] == ends["read"] + ends["left"]
        assert stats["failed"] == 0

        running = [backend.submit(request(prompt(4, number), new=ENDLESS)) for number in range(3)]
        for stream in running:
            next(stream)
        waiting = [backend.submit(request(prompt(4), new=1)) for _ in range(4)]
        with pytest.raises(EngineBusy, match="4"):
            backend.submit(request(prompt(4)))
        for stream in [*running, *waiting]:
            stream.close()


@pytest.mark.parametrize("kind", ["packed", "slots"])
def test_sixty_four_at_once_get_what_each_gets_alone(kind: str) -> None:
    shared = prompt(40, seed=99)
    requests = [request((*shared[: number % 41], *prompt(1 + number, number)), new=20) for number in range(64)]
    model = model_of(kind)
    with tiny_backend(model, max_batch=1, drafting=False, prefix_reuse=False) as backend:
        alone = run_alone(backend, requests)
    with tiny_backend(model, max_batch=64) as backend:
        assert run_together(backend, requests) == alone
        assert backend.stats()["forwards"] < 64 * 20 / 4


# numbers


@pytest.mark.skipif(native.kernels() is None, reason="the kernels were not built for this processor")
def test_what_is_no_number_stays_with_its_own_request_in_kernels() -> None:
    model = model_of("packed")
    model.model.embed_tokens.register_forward_hook(
        lambda module, ids, output: output.masked_fill((ids[0] == 511)[..., None], torch.nan)
    )
    expected = [generated(model, prompt(50), 60), *(generated(model, prompt(2 + row, row)) for row in range(3))]
    with tiny_backend(model) as backend:
        assert isinstance(backend._scheduler._runner, PackedRunner)
        running = backend.submit(request(prompt(50), new=60))
        spoiled = [backend.submit(request((*prompt(40), 511, *prompt(row, 7)), temperature=1.0)) for row in (1, 30)]
        for stream in spoiled:
            with pytest.raises(EngineDied, match="float32"):
                list(stream)
        # These get the spoiled rows, and are shorter than what these held.
        later = [backend.submit(request(prompt(2 + row, row))) for row in range(3)]
        assert [ids_of(stream) for stream in [running, *later]] == expected


@KINDS
@pytest.mark.parametrize("where", ["norm", "layer"])
def test_weights_that_are_no_numbers_are_told(kind: str, where: str) -> None:
    model = model_of(kind)
    for name, parameter in model.named_parameters():
        if ("norm" in name or "ln_f" in name) if where == "norm" else "mlp" in name:
            parameter.fill_(torch.nan)
    with tiny_backend(model) as backend:
        for _ in range(2):
            with pytest.raises(EngineDied, match="not numbers"):
                list(backend.submit(request(prompt(5))))


@pytest.mark.parametrize("kind", ["packed", "slots"])
def test_positions_far_beyond_the_first_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of more than 4,096 positions, alone, beside a short one, and begun where another one ended."""
    if kind == "packed":
        sizes = {**SIZES, "hidden_size": 64, "intermediate_size": 112, "head_dim": 16, "max_position_embeddings": 8192}
        model = architecture("qwen3", sizes)
    else:
        model = tiny_model(max_position_embeddings=8192)
    fix_costs(monkeypatch, free)
    lengths = (4095, 4300, 5121)
    long = prompt(max(lengths))
    # Not beside the engine, which has the model for itself.
    expected = [*(generated(model, long[:length], 8) for length in lengths), generated(model, prompt(3), 200)]
    with tiny_backend(model) as backend:
        streams = [backend.submit(request(long[:length], new=8)) for length in lengths]
        short = backend.submit(request(prompt(3), new=200))
        answers = [ids_of(stream) for stream in [*streams, short]]
        assert answers == expected
        assert backend.stats()["cached_prompt_tokens"] > 4095


# several engines


def test_two_engines_share_the_threads_of_the_machine() -> None:
    if native.kernels() is None:
        pytest.skip("the kernels were not built for this processor")
    models = [model_of("packed"), model_of("packed")]
    requests = [request(prompt(20 + number, number), new=25, temperature=1.0, seed=number) for number in range(12)]
    spec = constraints.regex("[a-f]{20,40}")
    requests += [Request(prompt(9, number), Sampling(max_tokens=50), frozenset({2}), spec) for number in range(4)]
    with tiny_backend(models[0], max_batch=1, drafting=False, prefix_reuse=False) as backend:
        alone = run_alone(backend, requests)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        backends = [TorchBackend(model, tiny_tokenizer()) for model in models]
        with ThreadPoolExecutor(2) as pool:
            for _ in range(3):
                assert list(pool.map(lambda one: run_together(one, requests), backends)) == [alone, alone]
        for one in backends:
            one.close()
    finally:
        torch.set_num_threads(before)


# interrupts and processes

BEGINNING = """
import os, signal, sys, threading, time
import torch
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import EngineClosed
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request
from tests.engine.soak.models import model_of, tokenizer

def wait_for(reached):
    limit = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < limit
        time.sleep(0.002)

def idle(engine):
    wait_for(lambda: engine.stats()["running"] + engine.stats()["waiting"] == 0)

ENDLESS = Sampling(max_tokens=100_000, temperature=1.0, seed=1)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGINNING + script, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


INTERRUPTED = """
engine = Engine(model_of(sys.argv[1]), tokenizer())

def interrupt():
    begun.wait()
    time.sleep(0.002 * count)
    os.kill(os.getpid(), signal.SIGINT)

for count in range(10):
    other = engine.backend.submit(Request((5, 6, 7), Sampling(max_tokens=40)))
    begun = threading.Event()
    threading.Thread(target=interrupt).start()
    try:
        stream = engine.backend.submit(Request((5, 6, 7, count + 8), ENDLESS))
        begun.set()
        for event in stream:
            pass
        raise AssertionError("no interrupt")
    except KeyboardInterrupt:
        stream.close()
    assert sum(len(getattr(event, "ids", ())) for event in other) == 40
    idle(engine)
engine.close()
"""


@pytest.mark.parametrize("kind", ["packed", "slots"])
def test_an_interrupted_reader_frees_its_slot_and_the_engine_goes_on(kind: str) -> None:
    if kind == "packed" and native.kernels() is None:
        pytest.skip("the kernels were not built for this processor")
    ended = run(INTERRUPTED, kind)
    assert ended.stdout + ended.stderr == ""
    assert ended.returncode == 0


FORKED = """
torch.set_num_threads(3)
engine = Engine(model_of(sys.argv[1]), tokenizer())
streams = [engine.backend.submit(Request((5, 6, number), ENDLESS)) for number in range(4)]
for stream in streams:
    next(stream)
expected = None
def answer(engine):
    return [event for event in engine.backend.submit(Request((9, 8, 7), Sampling(max_tokens=20)))]
children = []
for _ in range(8):  # whatever the parent's threads are at
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                next(streams[0])
            except EngineClosed:
                torch.set_num_threads(1)  # those of torch itself do not outlive a fork
                torch.get_num_threads = lambda: 2
                own = Engine(model_of(sys.argv[1]), tokenizer())
                answer(own)
                own.close()
                status = 0
        except BaseException as error:
            print(repr(error), flush=True)
        os._exit(status)
    children.append(child)
for child in children:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
for stream in streams:
    next(stream)
engine.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.skipif(native.kernels() is None, reason="the kernels were not built for this processor")
def test_children_of_a_busy_process_have_kernels_of_their_own() -> None:
    ended = run(FORKED, "packed")
    assert ended.stdout + ended.stderr == ""
    assert ended.returncode == 0
