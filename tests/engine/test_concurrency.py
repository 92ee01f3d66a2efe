"""Many threads on one engine: every answer is the one that its caller would get alone."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.engine import Engine
from chatlocal.engine.events import Event, collect
from chatlocal.engine.messages import Sampling
from tests.engine.runtime.running import scheduler_threads, wait_for
from tests.scripted import scripted_engine
from tests.tiny import tiny_model, tiny_tokenizer

CALLS = 64

SPECS: list[Any] = [
    None,
    constraints.regex("[a-c]{2,6}-[0-9]{2}"),
    None,
    constraints.choice(["brown", "black", "white as snow"]),
    None,
    constraints.json_schema({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
]


def call(number: int) -> dict[str, Any]:
    """The arguments of one of 64 distinct calls: lengths, ways to sample and constraints of all kinds."""
    sampled = {"temperature": 1.0, "seed": number} if number % 2 else {}
    cut = [{}, {"top_k": 9}, {"top_p": 0.8}, {"repetition_penalty": 1.2}][number % 4]
    return {
        "messages": [{"role": "user", "content": f"{number} " + "小狗 dog " * (number % 11)}],
        "spec": SPECS[number % len(SPECS)],
        "sampling": Sampling(max_tokens=24, **sampled, **cut),
    }


def run_in_threads(count: int, run: Any) -> list[Any]:
    results: list[Any] = [None] * count
    start = threading.Barrier(count)

    def work(number: int) -> None:
        start.wait()
        try:
            results[number] = run(number)
        except Exception as error:  # shown by the comparison below
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive()
    return results


def test_sixty_four_threads_get_what_each_gets_alone() -> None:
    before = len(scheduler_threads())
    with Engine(tiny_model(), tiny_tokenizer()) as engine:
        alone = [engine.generate(**call(number)) for number in range(CALLS)]

        def run(number: int) -> Any:
            if number % 8 == 7:  # leaves early
                stream = engine.stream(**call(number))
                next(stream)
                stream.close()
                return None
            return collect(engine.stream(**call(number))) if number % 3 else engine.generate(**call(number))

        together = run_in_threads(CALLS, run)
        assert together == [None if number % 8 == 7 else reply for number, reply in enumerate(alone)]
        wait_for(lambda: engine.stats()["running"] + engine.stats()["waiting"] == 0, "nothing runs")
        assert engine.stats()["failed"] == 0
    assert len(scheduler_threads()) == before


@pytest.mark.parametrize("threads", [16])
def test_a_fast_tokenizer_is_shared_by_threads(threads: int) -> None:
    """Sixteen threads that render, encode and decode fifty prompts each, and nothing else."""

    def ids(request: Any) -> Any:
        return request.prompt_ids[-40:-5]

    engine = scripted_engine(ids)

    def run(number: int) -> list[Any]:
        chosen = random.Random(number)
        answers: list[list[Event]] = []
        for _ in range(50):
            text = "".join(chosen.choice("abc 小狗🦥é") for _ in range(20))
            answers.append(list(engine.stream([{"role": "user", "content": text}])))
        return answers

    alone = [run(number) for number in range(threads)]
    assert run_in_threads(threads, run) == alone
