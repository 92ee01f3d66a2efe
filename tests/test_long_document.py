"""A document of 100,000 characters on the embedded model, killed twice on its way."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The text, and the visits that are in it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("long_document").long_document(100_000)


@pytest.mark.evaluate
@pytest.mark.timeout(7200)
def test_a_long_document_killed_twice_equals_an_uninterrupted_run(
    made: Any, embedded_folder: Path, tmp_path: Path
) -> None:
    text, visits = made
    assert len(text) >= 100_000
    (tmp_path / "harbour.txt").write_text(text, encoding="utf-8")
    parts = tmp_path / "killed.jsonl.parts"

    def start(output: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "chatlocal", "extract", "--input", "harbour.txt", "--output", output]
        command += [
            "--schema",
            str(ROOT / "benchmarks" / "long_document.py:Visit"),
            "--many",
            "--dtype",
            "float32",
            "--method",
            "write",
        ]
        command += ["--part-tokens", "160", "--overlap-tokens", "24", "--report", f"{output}.html"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(command, cwd=tmp_path, env=environment)

    kept = b""
    for goal in (60, 150):
        with start("killed.jsonl") as process:
            while not parts.exists() or parts.read_bytes().count(b"\n") < goal:
                assert process.poll() is None
                time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
        assert parts.read_bytes().startswith(kept)
        kept = parts.read_bytes()
    for output in ("killed.jsonl", "whole.jsonl"):
        with start(output) as process:
            assert process.wait() in (0, 3)
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()

    done = [json.loads(line) for line in parts.read_text(encoding="utf-8").splitlines()[1:]]
    assert len({(one["start"], one["end"]) for one in done}) == len(done)
    (line,) = (tmp_path / "killed.jsonl").read_text(encoding="utf-8").splitlines()
    records = json.loads(line)["records"]
    exact = [one for record in records for one in record["fields"] if one.get("match") == "exact"]
    assert len(exact) > len(visits) / 2
    assert all(text[one["start"] : one["end"]] == one["value"] for one in exact)
    starts = [record["fields"][0]["start"] for record in records if "start" in record["fields"][0]]
    assert starts == sorted(starts)
    found = {record["data"]["ship"] for record in records} & {visit.ship for visit in visits}
    print(f"{len(done)} parts, {len(records)} records, {len(found)} of {len(visits)} ships")
