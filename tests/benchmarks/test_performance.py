"""The table of `make bench`: that it holds every row, what it says of a side that is not there, and how it counts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tiny import save_tiny, tiny_tokenizer

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Room for 2,000 ids of history and an answer."""
    folder = save_tiny(tmp_path_factory.mktemp("model"), tokenizer=False, max_position_embeddings=4096)
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 4096
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of benchmarks/speed as the scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str) -> ModuleType:
        return importlib.import_module(f"speed.{name}")

    return load


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.timeout(1500)
def test_every_row_is_measured(model: Path, tmp_path: Path) -> None:
    done = run(
        "performance.py", "--quick", "--model", str(model), "--dtype", "float32", "--device", "cpu", "--threads", "1",
        "--output", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "performance.json").read_text())
    rows = {line["row"] for line in report["lines"]}
    assert rows == {"throughput", "extraction", "chat", "drafting", "arrival", "memory", "step", "growth"}
    # Memory may come out at nothing for so small a model; all other figures of ours are there.
    unmeasured = [line for line in report["lines"] if line["row"] != "memory" and not line["ours"]]
    assert unmeasured == []
    # Without vLLM's environment its line says so, and everything that comes with transformers is there.
    alone = [line for line in report["lines"] if line["theirs"] is None]
    assert {line["against"] for line in alone} <= {"vLLM", "HuggingFacePipeline", "outlines"}
    assert all(line["note"] for line in alone)
    assert all(side for curve in report["growth"].values() for side in curve.values())
    for line in report["lines"]:
        assert line["what"] in done.stdout


def test_a_script_for_cuda_says_when_there_is_none(model: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = run("gpu.py", "--model", str(model))
    assert done.returncode == 1
    assert "no CUDA device" in done.stderr


def test_a_child_calls_methods_and_says_why_it_cannot(speed: Any) -> None:
    children = speed("children")
    child = children.Child(dict, a=1)
    try:
        assert child.call("get", "a") == 1
        with pytest.raises(children.Unavailable, match="KeyError"):
            child.call("pop", "b")
        assert child.call("pop", "a") == 1
    finally:
        child.close()


def test_a_side_that_is_not_installed_is_named_as_missing(speed: Any) -> None:
    children = speed("children")
    makers = {"there": children.Child(dict, a=1), "not": children.Child(importlib.import_module, "no_such_library")}
    with children.Sides(makers) as sides:
        assert sides.call("there", "get", "a") == 1
        assert sides.call("not", "anything") is None
        assert sides.call("not", "anything") is None
        assert sides.missing == {"not": "not installed (no_such_library)"}


@pytest.mark.parametrize(("better", "ratio"), [("more", 0.5), ("less", 2.0), ("of", 0.5)])
def test_a_ratio_says_how_much_better_ours_is(speed: Any, better: str, ratio: float) -> None:
    lines = speed("lines")
    assert lines.Line("row", "what", "s", 2.0, "other", 4.0, better).ratio == ratio
    assert lines.Line("row", "what", "s", 2.0, "other", None, better, "not installed").ratio is None


def test_gaps_lie_within_a_time_or_across_it(speed: Any) -> None:
    streams = speed("ours").Streams([])
    streams._times = [[0.0, 1.0, 3.0, 6.0], [2.0, 2.5]]
    assert streams.all_began() == 2.0
    assert streams.gaps(after=1.0) == [2.0, 3.0, 0.5]
    assert streams.gaps(after=0.0, until=3.0) == [1.0, 2.0, 0.5]
    # From 2 to 4: the gap from 1 to 3 began before it, and the one from 3 to 6 ends after it.
    assert streams.gaps_across(2.0, 4.0) == [2.0, 3.0, 0.5]


def test_no_prompt_of_a_round_is_asked_twice(speed: Any) -> None:
    throughput, prompts = speed("throughput"), speed("prompts")
    asked = [prompts.wish(number, turn) for turn in range(6) for number in range(sum(throughput.BATCHES))]
    assert len(set(asked)) == len(asked)
    parts = list(throughput.parts([[number] for number in range(21)]))
    assert [len(part) for part in parts] == [1, 4, 16]
    assert sorted(prompt[0] for part in parts for prompt in part) == list(range(21))


def test_long_prompts_have_their_length_and_no_common_beginning(speed: Any) -> None:
    prompts, tokenizer = speed("prompts"), tiny_tokenizer()
    one, other = (prompts.long_ids(tokenizer, 300, start) for start in (0, 7))
    assert len(one) == len(other) == 300
    assert one[:4] != other[:4]


def test_the_table_shows_figures_and_reasons(speed: Any) -> None:
    report = {
        "model": "tiny", "dtype": "float32", "threads": 1, "machine": "a machine", "device": "cpu", "load": "0.0",
        "torch": "2", "transformers": "5", "date": "2026-01-02", "quick": False, "failed": {"chat": "ValueError: no"},
        "lines": [
            {"row": "r", "what": "one stream", "unit": "tokens/s", "ours": 1234.5, "against": "generate",
             "theirs": 617.25, "better": "more", "ratio": 2.0, "note": ""},
            {"row": "r", "what": "one stream", "unit": "tokens/s", "ours": 1234.5, "against": "peer",
             "theirs": None, "better": "more", "ratio": None, "note": "not installed (peer)"},
            {"row": "r", "what": "a step", "unit": "ms", "ours": 10.5, "against": "bare forward",
             "theirs": 10.0, "better": "of", "ratio": 1.05, "note": ""},
        ],
    }  # fmt: skip
    module = speed("report")
    rows = module.table(report).splitlines()
    assert rows[0].startswith("tiny, float32, 1 threads; a machine")
    assert rows[3].split() == ["one", "stream,", "tokens/s", "1,234", "generate", "617", "2.00", "x"]
    assert rows[4].split() == ["1,234", "peer", "-", "-", "not", "installed", "(peer)"]
    assert rows[5].split()[-2:] == ["1.05", "of"]
    assert "chat: not measured, ValueError: no" in rows
    # In the README stands what has both figures.
    assert module.markdown(report).splitlines()[2:] == [
        "| one stream, tokens/s | 1,234 | generate | 617 | 2.00 x |",
        "| a step, ms | 10.5 | bare forward | 10.0 | 1.05 |",
    ]


def test_the_readme_shows_the_figures_that_are_kept() -> None:
    done = run("readme_speed.py", "--check")
    assert done.returncode == 0, done.stderr
