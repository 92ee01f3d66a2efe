"""docs/extraction_documents.md: its code runs as it stands there, on the embedded model."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extraction_documents.md").read_text(encoding="utf-8")
BLOCKS = [(kind, code) for kind, code in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]


@pytest.fixture
def folder(tmp_path: Path, embedded_folder: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "documents", tmp_path / "examples" / "documents")
    return tmp_path


def ran(arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_command_runs(folder: Path) -> None:
    (source,) = (code for kind, code in BLOCKS if kind == "python" and code.startswith("# places.py"))
    (folder / "places.py").write_text(source, encoding="utf-8")
    (command,) = (code for kind, code in BLOCKS if kind == "console")
    python, *arguments = shlex.split(command)
    assert python == "python"
    ran(arguments, folder)
    lines = [json.loads(line) for line in (folder / "places.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["document"] for line in lines] == sorted(
        path.relative_to(folder).as_posix() for path in (folder / "examples" / "documents").iterdir()
    )
    assert sum(len(line["records"]) for line in lines) > 0
    assert "</html>" in (folder / "places.html").read_text(encoding="utf-8")


def test_the_code_runs(folder: Path) -> None:
    (code,) = (code for kind, code in BLOCKS if kind == "python" and not code.startswith("# places.py"))
    shown = ran(["-c", code], folder)
    assert re.search(r"^note \d+ \d+ name='", shown, re.MULTILINE)
    assert re.search("^便条 ", shown, re.MULTILINE)
    assert (folder / "notes.jsonl").exists()
    assert (folder / "notes.html").exists()


def test_the_line_it_shows_is_one_that_is_written(folder: Path) -> None:
    from chatlocal.extractors.results import Field, Record, Span
    from chatlocal.extractors.results_json import record_json

    (shown,) = (json.loads(code) for kind, code in BLOCKS if kind == "json")
    field = Field("/name", "Lantern Museum", Span(4, 18, "exact"), 0.93)
    data = {"name": "Lantern Museum"}
    assert shown["records"] == [record_json(Record(data, data, "Place", (field,), "docs/a.txt", 4, 18))]


def test_every_option_is_described() -> None:
    shown = ran(["-m", "chatlocal", "extract", "--help"], ROOT)
    options = set(re.findall(r"--[a-z-]+", shown)) - {"--help"}
    assert {option for option in options if option not in PAGE} == set()
