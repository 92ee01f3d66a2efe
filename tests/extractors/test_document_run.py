"""Runs over documents: order, errors, offsets, and going on after a kill."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document as LangChainDocument
from langchain_core.language_models import FakeListChatModel

from chatlocal import ChatLocal
from chatlocal.engine.errors import EngineClosed, OutputConflict, UnsupportedInput
from chatlocal.extractors import Extractor
from chatlocal.extractors.document_run import extract_documents
from chatlocal.extractors.documents import Document, Unread, documents_of
from chatlocal.extractors.journal import Lines
from chatlocal.extractors.results import Extraction, Failure
from chatlocal.extractors.run_settings import difference, settings_of
from tests.extractors.rule_extractor import Dog, RuleExtractor
from tests.scripted import scripted_engine

ROOT = Path(__file__).parent.parent.parent
COLORS = ("brown", "black", "white", "grey")


def story(dogs: int, seed: int = 0) -> str:
    """English and Chinese, with so many dogs."""
    lines = []
    for number in range(seed, seed + dogs):
        color = COLORS[number % 4]
        name = f"Dog{number}" if number % 3 else f"狗{chr(0x4E00 + number)}"
        lines.append(f"{name} is {color}." if number % 3 else f"那天，{name}是{color}。")
        if number % 5 == 4:
            lines.append("\n\nNobody knew why it rained.")
    return " ".join(lines)


def dogs_of(extraction: Extraction) -> list[tuple[str, str]]:
    return [(record.value.name, record.value.color) for record in extraction.records]


def run(extractor: Any, documents: Any, **options: Any) -> list[Extraction]:
    options = {"part_tokens": 120, "overlap_tokens": 30, "progress": False, **options}
    return list(extract_documents(extractor, documents, **options))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_long_document_gives_every_record_once_with_its_place() -> None:
    text = story(60)
    (result,) = run(extractor := RuleExtractor(), [("tale", text)])
    assert max(map(len, extractor.texts)) <= 120
    assert len(extractor.texts) > 10
    assert dogs_of(result) == dogs_of(RuleExtractor().extract(text))
    assert len(result.records) == 60
    assert result.document == "tale"
    assert result.value == [record.value for record in result.records]
    for record in result.records:
        assert record.document == "tale"
        assert text[record.start : record.end].startswith(record.value.name)
        for field in record.fields:
            assert field.span is not None
            assert text[field.span.start : field.span.end] == field.value == record.data[field.pointer[1:]]
    assert sum(result.usage.values()) == sum(map(len, extractor.texts))
    assert len(result.raw) == len(extractor.texts)


def test_documents_come_in_their_order_whatever_takes_how_long() -> None:
    slow = RuleExtractor(lambda text: time.sleep(0.05 if "Dog1 " in text else 0))
    results = run(slow, {f"d{number}": story(2, number) for number in range(1, 30)}, concurrency=8)
    assert [result.document for result in results] == [f"d{number}" for number in range(1, 30)]


def test_what_goes_wrong_in_a_document_stops_no_other(tmp_path: Path) -> None:
    def fail(text: str) -> None:
        if "Dog7 " in text:
            raise RuntimeError("out of memory")

    unread = Unread("gone.pdf", Failure("PdfReadError", "no PDF"))
    output = tmp_path / "out.jsonl"
    documents = [("a", "Rex is brown."), ("b", story(20)), unread, ("d", ""), ("e", "Ben is black.")]
    results = run(RuleExtractor(fail), documents, output=output)
    assert [len(result.failures) > 0 for result in results] == [False, True, True, False, False]
    assert results[0].value == [Dog(name="Rex", color="brown")]
    for failure in results[1].failures:
        assert (failure.error, failure.message) == ("RuntimeError", "out of memory")
        assert "Dog7 " in story(20)[failure.start : failure.end]
    assert 0 < len(results[1].records) < 20
    assert results[2].failures == (unread.failure,)
    assert results[2].data is None
    assert results[3].data == []
    written = lines_of(output)
    assert [line["document"] for line in written] == ["a", "b", "gone.pdf", "d", "e"]
    assert [len(line["records"]) for line in written] == [len(result.records) for result in results]

    again = RuleExtractor()
    mended = run(again, documents, output=output)
    assert len(again.texts) == len(results[1].failures)  # what failed, and nothing else
    assert len(mended[1].records) == 20
    assert [bool(line["failures"]) for line in lines_of(output)] == [False, False, True, False, False]


def test_what_ends_the_engine_ends_the_run_and_keeps_what_was_done(tmp_path: Path) -> None:
    def close(text: str) -> None:
        if "Dog40 " in text:
            raise EngineClosed("closed")

    output = tmp_path / "out.jsonl"
    with pytest.raises(EngineClosed):
        run(RuleExtractor(close), [("a", story(60))], output=output, concurrency=1)
    done = len(lines_of(tmp_path / "out.jsonl.parts")) - 1
    assert done > 3
    run(again := RuleExtractor(), [("a", story(60))], output=output)
    run(whole := RuleExtractor(), [("a", story(60))])
    assert len(again.texts) == len(whole.texts) - done


def test_a_full_disk_ends_the_run_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.jsonl"
    keep = Lines.append

    def append(self: Lines, line: bytes) -> int:
        class Full:
            """Takes ten bytes more and then no more."""

            def __init__(self, file: Any) -> None:
                self._file = file

            def write(self, data: bytes) -> int:
                if len(data) < 300:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return int(self._file.write(data[:10]))

            def __getattr__(self, name: str) -> Any:
                return getattr(self._file, name)

        whole = self._file
        try:
            if b"Dog7" in line:
                self._file = Full(whole)
            return keep(self, line)
        finally:
            self._file = whole

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "append", append)
        with pytest.raises(OSError, match="No space"):
            run(RuleExtractor(), [("a", story(30))], output=output, concurrency=1)
    assert len(lines_of(tmp_path / "out.jsonl.parts")) > 1
    (result,) = run(RuleExtractor(), [("a", story(30))], output=output)
    assert len(result.records) == 30


def test_a_key_that_no_record_has_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match="no record has the field 'nmae', but: name, color"):
        run(RuleExtractor(key=("nmae",)), ["Rex is brown."])


def test_several_passes_read_other_parts_and_find_nothing_twice() -> None:
    text = story(40)
    once, twice = RuleExtractor(), RuleExtractor()
    (first,), (second,) = run(once, [text]), run(twice, [text], passes=2)
    assert set(once.texts) < set(twice.texts)
    assert dogs_of(second) == dogs_of(first)
    assert len(set(twice.texts)) == len(twice.texts)


def test_a_pass_finds_what_another_one_missed() -> None:
    class Forgetful(RuleExtractor):
        """Sees only the first record of a part."""

        def extract(self, text: str, *, document: str | None = None) -> Extraction:
            found = super().extract(text)
            return Extraction(found.data[:1], found.value[:1], found.records[:1])

    text = story(40)
    counts = [len(run(Forgetful(), [text], passes=passes)[0].records) for passes in (1, 2, 3)]
    assert counts[0] < counts[1]
    assert counts[0] < counts[2]
    (found,) = run(Forgetful(), [text], passes=3)
    assert [record.start for record in found.records] == sorted(record.start for record in found.records)


def test_the_key_of_the_extractor_joins_records() -> None:
    text = f"Rex is brown. {story(20, 1)} Rex is brown."
    assert [len(run(RuleExtractor(key=key), [text])[0].records) for key in (None, ("name",))] == [22, 21]


def test_a_finished_run_asks_for_nothing_and_changes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "sub" / "out.jsonl"
    documents = {"a": story(20), "b": story(5, 50), "c": ""}
    first = run(RuleExtractor(), documents, output=output)
    before = output.read_bytes(), output.with_name("out.jsonl.parts").read_bytes()
    again = run(extractor := RuleExtractor(), documents, output=output)
    assert extractor.texts == []
    assert again == first
    assert (output.read_bytes(), output.with_name("out.jsonl.parts").read_bytes()) == before


def test_only_documents_that_are_new_or_changed_are_read(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    run(RuleExtractor(), {"a": "Rex is brown.", "b": "Ben is black.", "c": "Max is white."}, output=output)
    changed = {"a": "Rex is brown.", "new": "Tom is grey.", "b": "Ben is blue.", "c": "Max is white."}
    run(extractor := RuleExtractor(), changed, output=output)
    assert sorted(extractor.texts) == ["Ben is blue.", "Tom is grey."]
    run(RuleExtractor(), changed, output=tmp_path / "fresh.jsonl")
    assert output.read_bytes() == (tmp_path / "fresh.jsonl").read_bytes()
    run(RuleExtractor(), {"a": "Rex is brown."}, output=output)
    assert [line["document"] for line in lines_of(output)] == ["a"]


def test_other_settings_on_the_same_file_are_refused_by_name(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    run(RuleExtractor(), {"a": "Rex is brown."}, output=output)
    before = output.read_bytes()
    with pytest.raises(OutputConflict, match=r"out\.jsonl was begun.*part_tokens was 120 and is 100"):
        run(RuleExtractor(), {"a": "Rex is brown."}, output=output, part_tokens=100)
    with pytest.raises(OutputConflict, match="key was None and is"):
        run(RuleExtractor(key=("name",)), {"a": "Rex is brown."}, output=output)
    other = RuleExtractor()
    other.llm.model = "another rule"
    with pytest.raises(OutputConflict, match="model was 'a rule' and is 'another rule'"):
        run(other, {"a": "Rex is brown."}, output=output)
    assert output.read_bytes() == before


def test_what_the_results_of_an_extractor_depend_on_is_told() -> None:
    engine = scripted_engine("[]")
    plain = settings_of(Extractor(list[Dog], engine), passes=1)
    assert json.loads(json.dumps(plain)) == plain
    assert difference(plain, settings_of(Extractor(list[Dog], ChatLocal(engine=engine)), passes=1)) == ""
    dog = Dog(name="Rex", color="red")
    for options, said in (
        ({"schema": Dog}, "another schema"),
        ({"instructions": "Mind."}, "instructions was None and is 'Mind.'"),
        ({"examples": [("Rex is red.", [dog])]}, "examples was [] and is [["),
        ({"min_confidence": 0.5}, "min_confidence was None and is 0.5"),
        ({"max_retries": 3}, "max_retries"),
        ({"constrain": False}, "constrain was True and is False"),
        ({"method": "write"}, "method was None and is 'write'"),
        ({"max_tokens": 99}, "max_tokens was None and is 99"),
        ({"key": "name"}, "key was None and is ['name']"),
        ({"llm": FakeListChatModel(responses=["[]"])}, "FakeListChatModel"),
    ):
        changed: dict[str, Any] = {"schema": list[Dog], "llm": engine, **options}
        assert said in difference(plain, settings_of(Extractor(**changed), passes=1))
    assert difference(plain, settings_of(Extractor(list[Dog], engine), passes=2)) == "passes was 1 and is 2"


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("precious\n")
    with pytest.raises(OutputConflict, match="there already"):
        run(RuleExtractor(), {"a": "Rex is brown."}, output=output)
    (tmp_path / "out.jsonl.parts").write_text('{"mine": 1}\n')
    with pytest.raises(OutputConflict, match="cannot be read"):
        run(RuleExtractor(), {"a": "Rex is brown."}, output=output)
    assert output.read_text() == "precious\n"


def test_two_runs_at_once_on_one_file_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    going_on = extract_documents(RuleExtractor(), ["Rex is brown.", "Ben is black."], output=output, progress=False)  # type: ignore[arg-type]
    next(going_on)
    with pytest.raises(OutputConflict, match="Another run"):
        run(RuleExtractor(), ["Rex is brown."], output=output)
    going_on.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", [1, 30, 300])
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.parts"])
def test_a_torn_last_line_is_repaired(tmp_path: Path, name: str, cut: int) -> None:
    documents = {"a": story(20), "b": story(9, 50)}
    output = tmp_path / "out.jsonl"
    run(RuleExtractor(), documents, output=output)
    whole = output.read_bytes()
    torn = (tmp_path / name).read_bytes()[:-cut]
    (tmp_path / name).write_bytes(torn)
    run(extractor := RuleExtractor(), documents, output=output)
    assert len(extractor.texts) <= (0 if name == "out.jsonl" else 2)
    assert output.read_bytes() == whole
    assert len({line["start"] for line in lines_of(tmp_path / "out.jsonl.parts")[1:] if line["document"] == "a"}) > 3


def test_killed_twice_and_resumed_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    documents = [("one", story(70)), ("two", story(3, 100)), ("三", story(60, 200))]
    source = tmp_path / "documents"
    source.write_text("\x1e".join("\t".join(pair) for pair in documents), encoding="utf-8")
    output, calls = tmp_path / "out.jsonl", tmp_path / "calls"
    parts = tmp_path / "out.jsonl.parts"

    def start(delay: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.extractors.rule_extractor", source, output, calls, str(delay)]
        return subprocess.Popen([str(one) for one in command], cwd=ROOT)

    kept: list[bytes] = []
    for goal in (6, 14):
        with start(0.1) as process:
            while not parts.exists() or parts.read_bytes().count(b"\n") < goal:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        now = parts.read_bytes()
        assert now.startswith(b"".join(kept))  # nothing that was done is lost
        kept = now.splitlines(keepends=True)
    with start(0.0) as process:
        assert process.wait(60) == 0
    assert parts.read_bytes().startswith(b"".join(kept))

    uninterrupted = run(extractor := RuleExtractor(), documents, output=tmp_path / "fresh.jsonl")
    assert output.read_bytes() == (tmp_path / "fresh.jsonl").read_bytes()
    assert [len(result.records) for result in uninterrupted] == [70, 3, 60]
    done = [(line["document"], line["start"], line["end"]) for line in lines_of(parts)[1:]]
    assert len(set(done)) == len(done) == len(extractor.texts)  # nothing twice
    # Only what was being answered when the kill came was asked for again: at most four at once, killed twice.
    asked = len(calls.read_text(encoding="utf-8").splitlines())
    assert len(done) <= asked <= len(done) + 8


def test_what_comes_out_after_a_kill_is_what_comes_out_without(tmp_path: Path) -> None:
    """In memory too: instances, answers and usage."""
    documents = {"a": story(30), "b": story(4, 70)}
    whole = run(RuleExtractor(), documents, output=tmp_path / "whole.jsonl")
    assert whole == run(RuleExtractor(), documents)
    for file in ("whole.jsonl", "whole.jsonl.parts"):
        lines = (tmp_path / file).read_bytes().splitlines(keepends=True)
        (tmp_path / file).write_bytes(b"".join(lines[: len(lines) // 2]))
    assert run(RuleExtractor(), documents, output=tmp_path / "whole.jsonl") == whole
    assert isinstance(whole[0].value[0], Dog)


@pytest.mark.parametrize(
    "options", [{"passes": 0}, {"concurrency": 0}, {"part_tokens": 10, "overlap_tokens": 10}, {"overlap_tokens": -1}]
)
def test_wrong_options_are_refused_at_once(options: dict[str, int]) -> None:
    with pytest.raises(UnsupportedInput, match=next(iter(options)).partition("_")[0]):
        extract_documents(RuleExtractor(), ["text"], **options)  # type: ignore[arg-type]


def test_documents_come_in_many_forms() -> None:
    given: list[Any] = [
        "text",
        ("id", "text"),
        Document("id", "text"),
        LangChainDocument("text", metadata={"source": "file.pdf"}),
        LangChainDocument("text", metadata={"source": "file.pdf"}),
        LangChainDocument("text", id="x"),
        LangChainDocument("text"),
    ]
    found = list(documents_of(given))
    assert [one.id for one in found] == ["1", "id", "id#2", "file.pdf", "file.pdf#2", "x", "7"]
    assert all(isinstance(one, Document) and one.text == "text" for one in found)
    assert list(documents_of({"a": "text"})) == [Document("a", "text")]
    for wrong in ("text", 5, [5], [("id", 5)]):
        with pytest.raises(UnsupportedInput):
            list(documents_of(wrong))


def test_a_bar_is_drawn_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def __init__(self, terminal: bool) -> None:
            super().__init__()
            self._terminal = terminal

        def isatty(self) -> bool:
            return self._terminal

    for terminal in (True, False):
        monkeypatch.setattr(sys, "stderr", screen := Screen(terminal))
        run(RuleExtractor(), {"a": story(30), "b": "Rex is brown."}, progress=None)
        assert ("2.0/2 documents" in screen.getvalue()) is terminal
        assert ("31 records" in screen.getvalue()) is terminal


if os.name == "nt":
    pytest.skip("needs SIGKILL", allow_module_level=True)
