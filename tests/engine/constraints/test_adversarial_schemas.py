"""Specs made to cost time or memory: each is written or refused by name, within the limits of a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.constraints.adversarial_schemas import CASES, HEAVY

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the limits are those of Linux")

NAMED = {"written", "UnsupportedSchema", "TooComplex"}


@pytest.fixture(scope="module")
def trying() -> Iterator[subprocess.Popen[str]]:
    """One process with everything imported, of which each case gets a child."""
    program = [sys.executable, "-m", "tests.engine.constraints.adversarial_schemas"]
    root = Path(__file__).parents[3]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def tried(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(name) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


@pytest.mark.parametrize("name", [name for name in CASES if name not in HEAVY])
def test_it_is_written_or_refused_by_name_within_limits(name: str, trying: subprocess.Popen[str]) -> None:
    answer = tried(trying, name)
    assert answer["outcome"] in NAMED, answer


@pytest.mark.evaluate
@pytest.mark.parametrize("name", sorted(HEAVY))
def test_the_heavy_ones_too(name: str, trying: subprocess.Popen[str]) -> None:
    answer = tried(trying, name)
    assert answer["outcome"] in NAMED, answer
