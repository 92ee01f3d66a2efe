"""The chart: the main ratios, and how cost grows."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from speed.report import head

OURS, THEIRS = "#1f6f8b", "#c9762b"
CURVES = (
    ("rate", "Tokens per second with streams at once", "streams", "tokens/s"),
    ("first", "First id with the prompt", "ids of the prompt", "seconds"),
    ("step", "A step with the cache", "ids before it", "ms"),
)


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the chart of a report as a PNG file."""
    matplotlib.use("Agg")
    figure = Figure(figsize=(11, 8.5), dpi=120, layout="constrained")
    figure.suptitle("\n".join(textwrap.wrap(head(report), 120)), fontsize=9)
    panels = figure.subplots(2, 2)
    bars(panels[0][0], report["lines"])
    for panel, (key, title, x, y) in zip([panels[0][1], *panels[1]], CURVES, strict=True):
        curve(panel, report["growth"].get(key, {}), title, x, y)
    figure.savefig(path)


def bars(panel: Axes, lines: list[dict[str, Any]]) -> None:
    """One bar for each comparison in which a ratio says how much faster the engine is."""
    panel.set_title("Times as fast as", fontsize=10)
    shown = [
        line
        for line in lines
        if line["ratio"] is not None
        and line["better"] != "of"
        and line["row"] not in ("growth", "memory")
        and not line["against"].startswith("chatlocal")
    ][::-1]
    labels = [textwrap.shorten(f"{line['what']}: {line['against']}", 58, placeholder="…") for line in shown]
    values = [line["ratio"] for line in shown]
    drawn = panel.barh(range(len(shown)), values, color=[OURS if value >= 1 else THEIRS for value in values])
    panel.bar_label(drawn, [f"{value:.2g}" for value in values], fontsize=7, padding=2)
    panel.set_yticks(range(len(shown)), labels, fontsize=6)
    panel.axvline(1, color="black", linewidth=0.8)
    if values and max(values) > 8:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    panel.tick_params(axis="x", labelsize=7)
    panel.margins(x=0.15)


def curve(panel: Axes, sides: dict[str, list[list[float]]], title: str, x: str, y: str) -> None:
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(x, fontsize=8)
    panel.set_ylabel(y, fontsize=8)
    for place, (name, points) in enumerate(sides.items()):
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", label=name, color=(OURS, THEIRS)[place % 2])
    if any(sides.values()):
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=8)
    panel.tick_params(labelsize=7)
    panel.grid(alpha=0.3)
