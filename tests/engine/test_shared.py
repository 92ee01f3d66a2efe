"""One engine for each set of settings."""

from __future__ import annotations

import copy
import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from chatlocal.engine import shared
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import EngineDied
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.scheduler import Scheduler
from chatlocal.engine.shared import shared_engine
from tests.scripted import scripted_engine
from tests.tiny import save_tiny

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """What was loaded: engines over scripted backends, in a process of their own as it were."""
    calls: list[tuple[Any, dict[str, Any]]] = []

    def load(model: Any = None, **options: Any) -> Engine:
        time.sleep(0.02)
        calls.append((model, options))
        return scripted_engine("hello")

    monkeypatch.setattr(Engine, "load", load)
    monkeypatch.setattr(shared, "_engines", {})
    return calls


def test_the_same_settings_are_the_same_engine(loads: list[Any]) -> None:
    assert shared_engine("a", dtype="bfloat16") is shared_engine("a", dtype="bfloat16")
    assert shared_engine() is shared_engine()
    assert loads == [("a", {"dtype": "bfloat16"}), (None, {})]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"dtype": "bfloat16"}, {"dtype": torch.bfloat16}),
        ({"device": "cpu"}, {"device": torch.device("cpu")}),
        ({"cache_dir": "/a/b"}, {"cache_dir": Path("/a/b")}),
        ({"device": None, "dtype": None}, {}),
        ({"num_threads": 2, "device": "cpu"}, {"device": "cpu", "num_threads": 2}),
    ],
)
def test_settings_that_are_spelled_otherwise_are_the_same(
    loads: list[Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert shared_engine("a", **one) is shared_engine(Path("a"), **other)
    assert len(loads) == 1


def test_other_settings_are_other_engines(loads: list[Any]) -> None:
    engines = [
        shared_engine(),
        shared_engine("a"),
        shared_engine("b"),
        shared_engine("a", dtype="float32"),
        shared_engine("a", device="float32"),
        shared_engine("a", max_batch=3),
    ]
    assert len({id(engine) for engine in engines}) == len(engines) == len(loads)


def test_a_closed_engine_is_replaced(loads: list[Any]) -> None:
    first = shared_engine("a")
    first.close()
    second = shared_engine("a")
    assert second is not first
    assert second is shared_engine("a")


def test_threads_that_ask_at_once_wait_for_one_load(loads: list[Any]) -> None:
    engines: list[Engine] = []
    threads = [threading.Thread(target=lambda: engines.append(shared_engine("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len({id(engine) for engine in engines}) == 1


def test_a_load_that_fails_is_tried_again(loads: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    load = Engine.load
    monkeypatch.setattr(Engine, "load", lambda *arguments, **options: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(OSError, match="no network"):
        shared_engine("a")
    monkeypatch.setattr(Engine, "load", load)
    assert shared_engine("a") is shared_engine("a")


def test_an_engine_that_died_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_tiny(tmp_path)
    first = shared_engine(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "_admit", lambda scheduler: 1 / 0)
        with pytest.raises(EngineDied):
            first.generate(HELLO)
    second = shared_engine(str(folder))
    assert second is not first
    assert second.generate(HELLO, sampling=Sampling(max_tokens=3)).finish.usage.completion <= 3
    second.close()
    gc.collect()


def test_copies_of_a_front_end_share_their_engine() -> None:
    from chatlocal import ChatLocal, LocalLLM

    engine = scripted_engine("hello", "hello")
    chat, llm = copy.deepcopy(ChatLocal(engine=engine)), copy.deepcopy(LocalLLM(engine=engine))
    assert chat.engine is engine
    assert llm.engine is engine
    assert chat.invoke("hi").content == "hello"
