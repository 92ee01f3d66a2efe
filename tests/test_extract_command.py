"""`chatlocal extract`: what it reads, writes and says, its exit codes, and a run that is killed and goes on."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chatlocal import Engine
from chatlocal.__main__ import main
from chatlocal.commands.schema_argument import read_schema
from chatlocal.engine.errors import UnsupportedInput
from tests.extractors.rule_extractor import Dog, RuleExtractor
from tests.scripted import scripted_engine
from tests.tiny import save_tiny

ROOT = Path(__file__).parent.parent
SCHEMA = "tests.extractors.rule_extractor:Dog"


class Asked:
    """What the command handed over."""

    schema: Any
    options: dict[str, Any]
    model: str | None = None
    extractor: RuleExtractor


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Makes the command use an extractor that finds dogs by a rule, and no model."""
    asked = Asked()

    def load(model: str | None = None, **_: Any) -> Engine:
        asked.model = model
        return scripted_engine("")

    def extractor(schema: Any, llm: Any, **options: Any) -> RuleExtractor:
        def fail(text: str) -> None:
            if "flood" in text:
                raise RuntimeError("the model went away")

        asked.schema, asked.options = schema, options
        asked.extractor = RuleExtractor(fail)
        return asked.extractor

    monkeypatch.setattr(Engine, "load", load)
    monkeypatch.setattr("chatlocal.extractors.extractor.Extractor", extractor)
    return asked


def extract(*arguments: object) -> int:
    return main(["extract", "--schema", SCHEMA, "--many", *map(str, arguments)])


def names(lines: str) -> dict[str, list[str]]:
    read = [json.loads(line) for line in lines.splitlines()]
    return {line["document"]: [one["data"]["name"] for one in line["records"]] for line in read}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    docs = tmp_path / "docs"
    (docs / "more").mkdir(parents=True)
    (docs / "a.txt").write_text("Rex is brown. Ben is black.", encoding="utf-8")
    (docs / "more" / "b.md").write_text("# Dogs\n\n小白是白色。", encoding="utf-8")
    (docs / "c.html").write_text("<p>Max is grey.<script>Tom is red.</script>", encoding="utf-8")
    (docs / "d.png").write_bytes(b"\x89PNG")
    return docs


def test_a_folder_becomes_lines_and_a_report(folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract("--input", "docs/", "--output", "out.jsonl", "--report", "report.html", "--model", "some/model") == 0
    assert names(Path("out.jsonl").read_text(encoding="utf-8")) == {
        "docs/a.txt": ["Rex", "Ben"],
        "docs/c.html": ["Max"],
        "docs/more/b.md": ["小白"],
    }
    page = Path("report.html").read_text(encoding="utf-8")
    assert "小白是白色" in page
    assert "Extraction from docs/" in page
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "skipped files of other kinds: 1 .png" in captured.err
    assert "chatlocal: 3 documents, 4 records\n" in captured.err
    assert asked.schema == list[Dog]
    assert asked.model == "some/model"


def test_without_output_the_lines_go_to_stdout(folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract("--input", "docs/*.txt", "docs/more", "--input", "docs/a.txt") == 0
    assert names(capsys.readouterr().out) == {"docs/a.txt": ["Rex", "Ben"], "docs/more/b.md": ["小白"]}
    assert sorted(path.name for path in folder.parent.iterdir()) == ["docs"]


def test_stdin(asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Rex is brown. 小白是白色。".encode())))
    assert extract("--input", "-") == 0
    assert names(capsys.readouterr().out) == {"-": ["Rex", "小白"]}


def test_a_column_of_a_csv_file(folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dogs.csv").write_text('id,note\n1,"Rex is brown.\nBen is black."\n2,\n', encoding="utf-8-sig")
    assert extract("--input", "docs", "--column", "note") == 0
    assert names(capsys.readouterr().out) == {"docs/dogs.csv#1": ["Rex", "Ben"], "docs/dogs.csv#2": []}
    assert extract("--input", "docs", "--column", "text") == 3
    assert "has no column 'text', but: id, note" in capsys.readouterr().err


def test_errors_of_documents_are_told_at_the_end_and_stop_nothing(
    folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "aa.pdf").write_bytes(b"no PDF at all")
    (folder / "ab.txt").write_text("Tim is white. A flood came.", encoding="utf-8")
    (folder / "ac.txt").write_bytes("小白是白色。".encode("gb18030"))
    assert extract("--input", "docs", "--output", "out.jsonl", "--report", "report.html") == 3
    assert list(names(Path("out.jsonl").read_text(encoding="utf-8")).values()) == [
        ["Rex", "Ben"],
        [],
        [],
        [],
        ["Max"],
        ["小白"],
    ]
    err = capsys.readouterr().err
    assert re.search(r"^chatlocal: docs/aa\.pdf: Pdf\w+: ", err, re.MULTILINE)
    assert "chatlocal: docs/ab.txt, characters 0 to 27: RuntimeError: the model went away" in err
    assert re.search(r"docs/ac\.txt: UnsupportedInput: .*utf-8.*gb18030", err)
    assert "chatlocal: 6 documents, 4 records, 3 of the documents with failures\n" in err
    assert "Traceback" not in err
    assert "the model went away" in Path("report.html").read_text(encoding="utf-8")
    assert extract("--input", "docs/ac.txt", "--encoding", "gb18030") == 0


def test_options_reach_the_extractor(folder: Path, asked: Asked) -> None:
    Path("examples.jsonl").write_text('{"text": "Rex is red.", "answer": [{"name": "Rex"}]}\n\n', encoding="utf-8")
    assert (
        extract(
            *(
                "--input",
                "docs",
                "--examples",
                "examples.jsonl",
                "--instructions",
                "Mind the dogs.",
                "--grounded",
                "--method",
                "write",
            ),
            *("--min-confidence", "0.5", "--key", "name", "color", "--part-tokens", 12, "--overlap-tokens", 3),
            *("--passes", 2, "--concurrency", 2),
        )
        == 0
    )
    assert asked.options == {
        "examples": [("Rex is red.", [{"name": "Rex"}])],
        "instructions": "Mind the dogs.",
        "grounded": True,
        "method": "write",
        "min_confidence": 0.5,
        "key": ["name", "color"],
    }
    assert max(map(len, asked.extractor.texts)) <= 12


def test_another_run_on_the_same_file_is_refused(
    folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract("--input", "docs", "--output", "out.jsonl") == 0
    assert extract("--input", "docs", "--output", "out.jsonl", "--part-tokens", "99") == 1
    assert (
        "chatlocal: out.jsonl was begun with other settings (part_tokens was 512 and is 99)" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "nowhere"], "nowhere"),
        (["--input", "docs/*.png"], "nothing to read"),
        (["--input", "docs", "--examples", "none.jsonl"], "none.jsonl"),
        (["--input", "docs", "--examples", "docs/a.txt"], "not lines of"),
        (["--input", "docs", "--passes", "0"], "passes"),
        (["--input", "docs", "--overlap-tokens", "512"], "overlap"),
    ],
)
def test_wrong_arguments_are_an_error_of_ours(
    folder: Path, asked: Asked, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert extract(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("chatlocal: ")
    assert said in captured.err
    assert captured.out == ""


def test_schemas_have_three_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kennel.py").write_text(
        "from __future__ import annotations\nfrom pydantic import BaseModel\n"
        "class Owner(BaseModel):\n    name: str\nclass Pet(BaseModel):\n    owner: Owner | None\nPets = list[Pet]\n"
    )
    schema = {
        "title": "Pet",
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "string"}},
    }
    Path("pet.json").write_text(json.dumps(schema))
    beside = read_schema("kennel.py:Pet")
    assert beside(owner={"name": "Ann"}).owner.name == "Ann"
    assert read_schema("kennel:Pet").__name__ == "Pet"
    assert read_schema("./kennel.py:Pets").__origin__ is list
    assert read_schema("pet.json") == schema
    many = read_schema("pet.json", many=True)
    assert many["items"] == {key: schema[key] for key in ("title", "type", "properties")}
    assert many["$defs"] == schema["$defs"]
    with pytest.raises(UnsupportedInput, match="list already"):
        read_schema("kennel.py:Pets", many=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Dog", "module:Name"),
        ("no_such_module:Dog", "no_such_module cannot be imported"),
        ("json:Dog", "json has no 'Dog'"),
        ("none.py:Dog", "no Python file none.py"),
        ("none.json", "none.json cannot be read"),
        ("broken.json", "is not JSON"),
        ("list.json", "not an object"),
        ("broken.py:Dog", "broken.py cannot be run: ZeroDivisionError"),
    ],
)
def test_a_schema_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text("{")
    Path("list.json").write_text("[]")
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(UnsupportedInput, match=re.escape(said)):
        read_schema(name)


def test_a_model_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract("--input", "docs", "--model", "/no/such/model") == 1
    assert "/no/such/model" in capsys.readouterr().err


def test_killed_twice_on_a_real_model_it_ends_as_if_uninterrupted(tmp_path: Path) -> None:
    """A random model in float32 writes nonsense that fits the schema; the same nonsense, killed or not."""
    model = save_tiny(tmp_path / "model", max_position_embeddings=8192)
    document = tmp_path / "tale.txt"
    document.write_text("Harry was a chubby brown beagle. 小狗的名字叫哈利。\n\n" * 40, encoding="utf-8")
    (tmp_path / "schema.json").write_text(
        json.dumps(
            {
                "title": "Dog",
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 12}, "good": {"type": "boolean"}},
                "required": ["name", "good"],
            }
        )
    )

    def start(output: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "chatlocal", "extract", "--schema", "schema.json", "--input", "tale.txt"]
        command += ["--output", output, "--model", str(model), "--part-tokens", "60", "--overlap-tokens", "10"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        return subprocess.Popen(
            [*command, "--concurrency", "2"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
        )

    parts = tmp_path / "killed.jsonl.parts"
    kept = b""
    for more in (2, 2):
        goal = kept.count(b"\n") + more
        with start("killed.jsonl") as process:
            while not parts.exists() or parts.read_bytes().count(b"\n") < goal:
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert parts.read_bytes().startswith(kept)
        kept = parts.read_bytes()
    for output in ("killed.jsonl", "whole.jsonl"):
        with start(output) as process:
            _, err = process.communicate(timeout=200)
        assert process.returncode in (0, 3), err
        assert "Traceback" not in err
    assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    done = [json.loads(line) for line in parts.read_text(encoding="utf-8").splitlines()[1:]]
    places = [(one["start"], one["end"]) for one in done]
    assert len(set(places)) == len(places) > 10
    assert all(one["found"]["raw"] for one in done)
