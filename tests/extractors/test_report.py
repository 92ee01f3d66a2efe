"""The report: what is in the file, and what a browser makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from chatlocal.extractors.report import report, write_report
from chatlocal.extractors.results import Extraction, Failure, Field, Record, Span

CHROMIUM = os.environ.get("CHATLOCAL_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HOSTILE = "</script><script>window.hurt=1</script><!--<img src=x onerror=window.hurt=2>{{data}}&lt;\u2028\\"
PLACES = ("Hangzhou", "杭州", "Zürich", "Reykjavík")


def record(
    text: str, kind: str = "Visit", **values: tuple[Any, int | None, str, float | None, tuple[Any, ...]]
) -> Record:
    """A record of values with where they stand, how they were found, their confidence and flags."""
    fields = tuple(
        Field(
            f"/{name}",
            value,
            None if at is None else Span(at, at + len(str(value)), match, 0.9),  # type: ignore[arg-type]
            confidence,
            flags,
        )
        for name, (value, at, match, confidence, flags) in values.items()
    )
    spans = [one.span for one in fields if one.span]
    data = {name: value for name, (value, *_) in values.items()}
    return Record(data, data, kind, fields, None, min(one.start for one in spans), max(one.end for one in spans))


def many_documents(count: int = 200) -> tuple[list[Extraction], dict[str, str]]:
    """Visits in English and Chinese behind emoji, of which a browser counts each as two characters."""
    extractions, texts = [], {}
    for number in range(count):
        name = HOSTILE if number == 3 else f"报告/{number}.txt"
        text, records = f"🍕🦥 Report {number}.\n\n", []
        for visit in range(number % 12 + 1):
            who, place = f"王小明{visit}", PLACES[visit % 4]
            begin = len(text)
            text += f"{who} came from {place}, and it rained all day long on the hills behind the house. 👨‍👩‍👧\n\n"
            found = {
                "name": (who, begin, "exact", 0.75, ()),
                "place": (place, begin + len(f"{who} came from "), "fuzzy", 0.25, ("low confidence",)),
                "age": (7 + visit, None, "exact", None, ("ungrounded",)),
            }
            records.append(record(text, **found))
        if number == 3:
            text += HOSTILE
        texts[name] = text
        data = [one.data for one in records]
        extractions.append(Extraction(data, data, tuple(records), document=name))
    failure = Failure("PdfReadError", f"no PDF {HOSTILE}", f"raw {HOSTILE}", 0, 9)
    extractions.append(Extraction(None, None, failures=(failure,), document="broken.pdf"))
    return extractions, texts


def test_nothing_of_a_document_can_end_the_data() -> None:
    page = report(*many_documents(5), title=HOSTILE)
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert not re.search("[<>&]", data)
    found = json.loads(data)
    assert found["documents"][3]["id"] == HOSTILE
    assert found["documents"][3]["text"].endswith(HOSTILE)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = report(*many_documents(3))
    assert "default-src 'none'" in page
    assert re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", page.replace("src=x", "")) == []


def test_offsets_are_those_of_a_browser() -> None:
    text = "🍕 Rex 🦥 Ben"
    page = report([Extraction([], [], (record(text, name=("Ben", 8, "exact", None, ())),), document="d")], {"d": text})
    data = json.loads(re.findall(r'json">(.*?)</script>', page)[0])
    (field,) = data["documents"][0]["records"][0]["fields"]
    units = text.encode("utf-16-le")[2 * field["start"] : 2 * field["end"]]
    assert units.decode("utf-16-le") == "Ben"


def test_a_lone_surrogate_breaks_nothing(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", [Extraction([], [], document="d")], {"d": "half \ud83c of a pizza"})
    assert "half \\ud83c of" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("No Chromium is installed to look at reports with (Debian: apt install chromium).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, *many_documents(), title="Visits")
    return path


@pytest.fixture(params=[("light", 1400), ("dark", 900), ("dark", 390)], ids=["wide", "middle", "narrow"])
def page(browser: Browser, file: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The report in three widths, of which two are dark. It may not log, fail or fetch anything."""
    scheme, width = request.param
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda asked: said.append(asked.url) if asked.url != file.as_uri() else None)
    page.goto(file.as_uri())
    yield page
    assert said == []
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def values(page: Page) -> list[str]:
    return page.locator("tbody td.value").all_inner_texts()


def seen(page: Page, selector: str) -> bool:
    """Whether an element lies within the text's pane."""
    return bool(
        page.evaluate(
            """selector => {
                const at = document.querySelector(selector).getBoundingClientRect();
                const pane = document.querySelector("#reading").getBoundingClientRect();
                return at.top >= pane.top && at.bottom <= pane.bottom && at.left >= 0 && at.right <= innerWidth;
            }""",
            selector,
        )
    )


def test_a_click_on_a_row_goes_to_its_span(page: Page) -> None:
    page.locator("#query").fill("报告/11.txt 杭州")
    assert values(page) == ["杭州"] * 3
    page.locator("tbody tr").nth(2).click()
    assert page.locator("#name").inner_text() == "报告/11.txt"
    target = page.locator("mark.target")
    assert target.all_inner_texts() == ["杭州"]
    before = page.evaluate(
        """() => { const range = document.createRange(); range.selectNodeContents(document.querySelector("#text"));
                   range.setEndBefore(document.querySelector("mark.target")); return range.toString(); }"""
    )
    assert before.endswith("王小明9 came from ")  # the third of them, behind emoji and all
    page.wait_for_timeout(100)  # the scrolling is over
    assert seen(page, "mark.target")
    card = page.locator("#card")
    assert card.is_visible()
    assert "found nearly (90 % alike), confidence 25 %" in card.inner_text()
    assert "low confidence" in card.inner_text()
    assert "王小明9" in card.inner_text()


def test_a_value_that_is_not_in_the_text_shows_its_document(page: Page) -> None:
    page.locator("#of-state").select_option("absent")
    page.locator("#query").fill("报告/5.txt")
    page.locator("tbody tr").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#name").inner_text() == "报告/5.txt"
    assert page.locator("mark.target").count() == 0


def test_hovering_shows_the_record_confidence_and_match(page: Page) -> None:
    page.locator("mark").first.hover()
    shown = page.locator("#card").inner_text()
    for part in ("name: 王小明0", "found exactly, confidence 75 %", "place\nHangzhou", "age\n7"):
        assert part in shown
    assert page.locator("mark.record").all_inner_texts() == ["王小明0", "Hangzhou"]
    page.locator("h1").hover()
    assert not page.locator("#card").is_visible()


def test_fields_have_colours_that_can_be_hidden(page: Page) -> None:
    colours = "[...document.querySelectorAll('mark')].slice(0, 2).map(one => getComputedStyle(one).backgroundColor)"
    name, place = page.evaluate(colours)
    assert name != place
    page.locator("#legend button").first.click()
    hidden, still = page.evaluate(colours)
    assert hidden == "rgba(0, 0, 0, 0)"
    assert still == place


def test_the_text_can_be_read_on_its_colour(page: Page) -> None:
    """A contrast of 4.5 to 1 at least, as WCAG 2.2 asks for text (success criterion 1.4.3)."""
    pairs = page.evaluate(
        """() => [...document.querySelectorAll("mark, #summary, td, #text")].slice(0, 60).map(one => {
            let ground = one;
            while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
            return [getComputedStyle(one).color, getComputedStyle(ground).backgroundColor];
        })"""
    )
    assert len(pairs) == 60
    for ink, ground in pairs:
        light, dark = sorted(map(luminance, (ink, ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_table_sorts_and_filters(page: Page) -> None:
    page.locator("#of-field").select_option("age")
    head = page.locator("th button", has_text="Value")
    head.click()
    head.click()
    assert values(page)[0] == "18"  # as numbers: text would put 9 first
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Value")
    head.click()
    assert page.locator("th[aria-sort=descending]").count() == 0
    page.locator("#of-field").select_option("")
    page.locator("#of-state").select_option("review")
    page.locator("#of-document").select_option("this")
    assert values(page) == ["Hangzhou", "7"]
    assert page.locator("#count").inner_text().startswith("2 of ")
    page.locator("#query").fill("no such thing")
    assert values(page) == []


def test_rows_are_drawn_as_they_are_wanted(page: Page) -> None:
    everything = int(page.locator("#count").inner_text().split()[0].replace(",", ""))
    assert everything == 3 * sum(number % 12 + 1 for number in range(200))
    assert page.locator("tbody tr").count() < everything
    drawn = page.locator("tbody tr").count()
    page.locator("tbody tr").last.scroll_into_view_if_needed()
    page.locator("tbody tr").nth(drawn).wait_for(state="attached")


def test_what_failed_is_named_and_hostile_text_is_text(page: Page) -> None:
    assert "201 documents" in page.locator("#summary").inner_text()
    assert "1 document with failures" in page.locator("#summary").inner_text()
    page.locator("#failures summary").first.click()
    told = page.locator("#failures li")
    assert f"PdfReadError: no PDF {HOSTILE}" in told.inner_text()
    told.locator("button").click()
    assert page.locator("#text").inner_text() == "This document could not be read."
    page.evaluate("open(3)")
    assert page.locator("#name").text_content() == HOSTILE
    assert str(page.locator("#text").text_content()).endswith(HOSTILE)


def test_documents_are_chosen_from_a_list(page: Page) -> None:
    wide = page.evaluate("innerWidth") > 650
    if wide:
        page.locator("#documents button").nth(30).click()
    else:
        page.locator("#chosen").select_option("30")
    assert page.locator("#name").inner_text() == "报告/30.txt"
    assert page.locator("mark").count() == 2 * 7


def test_a_report_of_nothing_is_a_page(browser: Browser, tmp_path: Path) -> None:
    write_report(tmp_path / "empty.html", [], {})
    page = browser.new_page()
    page.goto((tmp_path / "empty.html").as_uri())
    assert page.locator("#text").inner_text() == "There are no documents."
    page.close()
