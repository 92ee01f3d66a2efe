"""Texts of files, and files that cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fpdf import FPDF
from pypdf import PdfWriter

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors.documents import Document, Unread
from chatlocal.extractors.readers import DocumentFiles


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(*inputs: str, **options: Any) -> list[Document | Unread]:
    return list(DocumentFiles(inputs, **options))


def text_of(name: str, content: bytes, **options: Any) -> str:
    Path(name).write_bytes(content)
    (document,) = read(name, **options)
    assert isinstance(document, Document), document
    assert document.id == name
    return document.text


def problem_of(name: str, content: bytes, **options: Any) -> str:
    Path(name).write_bytes(content)
    (unread,) = read(name, **options)
    assert isinstance(unread, Unread)
    return f"{unread.failure.error}: {unread.failure.message}"


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.markdown", "a.log", "A.TXT"])
def test_text_stays_as_it_is(name: str) -> None:
    text = "# 标题\r\n\r\n* Zürich 🍕\r\n\ttab  "
    assert text_of(name, text.encode()) == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_tells_the_encoding(encoding: str) -> None:
    assert text_of("a.txt", "小狗 Zürich".encode(encoding)) == "小狗 Zürich"
    assert text_of("a.html", "<p>小狗 Zürich".encode(encoding)).strip() == "小狗 Zürich"


def test_another_encoding_is_named() -> None:
    content = "小狗的名字".encode("gb18030")
    assert text_of("a.txt", content, encoding="gb18030") == "小狗的名字"
    assert "name its encoding" in problem_of("a.txt", content)
    assert "not in no-such" in problem_of("a.txt", b"x", encoding="no-such")


@pytest.mark.parametrize(
    ("source", "encoding"),
    [
        ("<p>小狗 Zürich", "utf-8"),
        ('<meta charset="gb18030"><p>小狗 Zürich', "gb18030"),
        ('<?xml version="1.0" encoding="utf-8"?><html><p>小狗 Zürich</p></html>', "utf-8"),
    ],
)
def test_html_in_the_encoding_it_names(source: str, encoding: str) -> None:
    assert text_of("a.html", source.encode(encoding)).strip() == "小狗 Zürich"


def test_html_becomes_what_a_reader_sees() -> None:
    source = """<html><head><title>T</title><style>p {}</style><script>alert("x")</script></head><body>
    <h1>Dogs &amp; cats</h1><p>Rex is <b>br</b>own.</p><p>Ben&nbsp;is black.</p>
    <table><tr><td>Max</td><td>grey</td></tr><tr><td>Tom</td><td>white</td></tr></table></body></html>"""
    lines = [
        line.strip() for line in text_of("a.htm", source.encode()).replace("\xa0", " ").splitlines() if line.strip()
    ]
    assert lines[:3] == ["Dogs & cats", "Rex is brown.", "Ben is black."]
    assert [line.split() for line in lines[3:]] == [["Max", "grey"], ["Tom", "white"]]


def test_an_empty_html_file_is_an_empty_document() -> None:
    assert text_of("a.html", b" \n") == ""


def pdf(*pages: str) -> bytes:
    made = FPDF()
    for page in pages:
        made.add_page()
        made.set_font("helvetica", size=12)
        made.multi_cell(0, 8, page)
    return bytes(made.output())


def test_pdf_pages_follow_each_other() -> None:
    assert text_of("a.pdf", pdf("Rex is brown.", "Ben is black.")) == "Rex is brown.\n\nBen is black."


def test_a_pdf_without_text_says_what_it_needs(tmp_path: Path) -> None:
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(tmp_path / "scan.pdf")
    assert "OCR" in problem_of("scan.pdf", Path("scan.pdf").read_bytes())


def test_a_pdf_under_a_password_is_told(tmp_path: Path) -> None:
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    assert "decrypt" in problem_of("locked.pdf", Path("locked.pdf").read_bytes())


def test_what_is_no_pdf_is_told() -> None:
    assert problem_of("a.pdf", b"nothing").startswith("Pdf")


@pytest.mark.parametrize(("name", "library"), [("a.pdf", "pypdf"), ("a.html", "inscriptis")])
def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, name: str, library: str) -> None:
    for module in [one for one in sys.modules if one.split(".")[0] == library] + [library]:
        monkeypatch.setitem(sys.modules, module, None)
    problem = problem_of(name, b"<p>text")
    assert problem.startswith("LibraryMissing: ")
    assert "pip install 'chatlocal-llm[documents]'" in problem


def test_rows_of_a_column() -> None:
    Path("a.csv").write_text('note,id\n"two\nlines",1\n"a ""quote"", and more",2\n', encoding="utf-8")
    assert read("a.csv", column="note") == [
        Document("a.csv#1", "two\nlines"),
        Document("a.csv#2", 'a "quote", and more'),
    ]


def test_a_row_that_is_too_short_and_a_column_that_is_not_there() -> None:
    Path("a.csv").write_text("id,note\n1\n2,text\n", encoding="utf-8")
    short, whole = read("a.csv", column="note")
    assert isinstance(short, Unread)
    assert short.id == "a.csv#1"
    assert whole == Document("a.csv#2", "text")
    assert "no column 'x', but: id, note" in problem_of("a.csv", b"id,note\n", column="x")


def test_a_cell_may_be_a_whole_book() -> None:
    assert len(text_of_row("x" * 1_000_000)) == 1_000_000


def text_of_row(text: str) -> str:
    Path("a.csv").write_text(f"note\n{text}\n", encoding="utf-8")
    (document,) = read("a.csv", column="note")
    assert isinstance(document, Document)
    return document.text


def test_folders_and_patterns_hold_files_of_known_kinds() -> None:
    for name in ("b.txt", "a.md", "c.png", "Makefile", ".hidden.txt", "sub/d.txt", ".git/e.txt", "t.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("note\nx\n")
    files = DocumentFiles(["."])
    assert [document.id for document in files] == ["a.md", "b.txt", "sub/d.txt"]
    assert files.skipped == {".png": 1, "": 1, ".csv": 1}
    assert len(files) == 3
    assert [document.id for document in read("**/*.txt")] == ["b.txt", "sub/d.txt"]
    assert [document.id for document in read("Makefile")] == ["Makefile"]
    assert [document.id for document in read(".", column="note")] == ["t.csv#1"]


def test_nothing_to_read_is_an_error() -> None:
    Path("empty").mkdir()
    Path("only").mkdir()
    Path("only/a.png").write_bytes(b"")
    with pytest.raises(UnsupportedInput, match=r"no file, folder or match for none\*"):
        DocumentFiles(["none*"])
    with pytest.raises(UnsupportedInput, match="nothing to read in empty"):
        DocumentFiles(["empty"])
    with pytest.raises(UnsupportedInput, match=r"\.pdf are read \(1 \.png skipped\)"):
        DocumentFiles(["only"])


def test_a_file_that_goes_away_stops_no_other() -> None:
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("x")
    files = DocumentFiles(["."])
    Path("a.txt").unlink()
    gone, there = files
    assert isinstance(gone, Unread)
    assert gone.failure.error == "FileNotFoundError"
    assert there == Document("b.txt", "x")
