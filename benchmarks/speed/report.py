"""What was measured as a table: for a terminal, and as Markdown."""

from __future__ import annotations

import textwrap
from typing import Any

HEAD = (
    "{model}, {dtype}, {threads} threads; {machine}, {device}, load {load} at the start; torch {torch},"
    " transformers {transformers}; {date}"
)


def table(report: dict[str, Any]) -> str:
    lines = [head(report), "", f"{'':66}{'chatlocal':>10}  {'':32}{'':>10}{'ratio':>9}"]
    last = ("", "")
    for line in report["lines"]:
        what = named(line)
        shown = what if (line["row"], what) != last else ""
        last = line["row"], what
        lines.append(
            f"{shown:66}{number(line['ours']):>10}  {line['against']:32}{number(line['theirs']):>10}"
            f"{ratio(line):>9}  {shortened(line['note'])}".rstrip()
        )
    lines += [f"{row}: not measured, {why}" for row, why in report["failed"].items()]
    lines += [
        "",
        "ratio: how many times faster or smaller (x); of: ours is so many times the other figure. One run, all sides.",
    ]
    return "\n".join(lines)


def head(report: dict[str, Any]) -> str:
    return HEAD.format(**report) + ("; --quick, one round" if report["quick"] else "")


def named(line: dict[str, Any]) -> str:
    return f"{line['what']}, {line['unit']}" if line["unit"] else str(line["what"])


def shortened(note: str) -> str:
    """What fits into a row; the JSON file has all of it."""
    return textwrap.shorten(note, 90, placeholder=" ...")


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def ratio(line: dict[str, Any]) -> str:
    value = line["ratio"]
    if value is None:
        return "-"
    return f"{value:.2f} of" if line["better"] == "of" else f"{value:.2f} x"


def markdown(report: dict[str, Any]) -> str:
    """The lines that have both figures, as a Markdown table."""
    rows = [
        f"| {named(line)} | {number(line['ours'])} | {line['against']} | {number(line['theirs'])} |"
        f" {ratio(line).removesuffix(' of')} |"
        for line in report["lines"]
        if line["ratio"] is not None and line["row"] != "growth"
    ]
    return "\n".join(["| | chatlocal | against | | ratio |", "|---|---|---|---|---|", *rows])
