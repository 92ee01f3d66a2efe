"""Rows `growth`: tokens per second with the batch, the first id with the prompt, a step with the cache."""

from __future__ import annotations

from typing import Any

from speed.children import Child, Sides
from speed.lines import Line
from speed.ours import Chatlocal
from speed.peers import Generate
from speed.settings import Settings
from speed.step import Bare

ROW = "growth"
MOST = 32

Curve = dict[str, list[list[float]]]


def measure(settings: Settings, prompts: list[list[int]]) -> tuple[list[Line], dict[str, Curve]]:
    """The ends of the curves as lines, and the curves: for each side [x, y] pairs."""
    makers = {
        "chatlocal": Child(Chatlocal, settings, max_batch=MOST),
        "generate": Child(Generate, settings),
        "bare forward": Child(Bare, settings),
    }
    with Sides(makers) as sides:
        curves = {
            "rate": _rates(sides, settings, prompts),
            "first": _firsts(sides, settings),
            "step": _steps(sides, settings),
        }
        missing = sides.missing
    return _lines(curves, missing), curves


def batches(settings: Settings) -> list[int]:
    return [1, 4, 16] if settings.quick else [1, 2, 4, 8, 16, 32]


def lengths(settings: Settings) -> list[int]:
    """Prompt lengths up to the context limit, less room for an answer."""
    most = min(settings.length - 16, settings.least(1 << 20, 1024))
    found = [length for length in (128 << power for power in range(14)) if length < most]
    return [*found, most]


def _rates(sides: Sides, settings: Settings, prompts: list[list[int]]) -> Curve:
    """Tokens per second for each number of streams; other prompts for each."""
    curve: Curve = {"chatlocal": [], "generate": []}
    sides.call("chatlocal", "run", prompts[:2], 4)
    sides.call("generate", "padded", prompts[:2], 4)
    used = 2
    for batch in batches(settings):
        asked = [prompts[(used + place) % len(prompts)] for place in range(batch)]
        used += batch
        for name, method in (("chatlocal", "run"), ("generate", "padded")):
            took = sides.call(name, method, asked, settings.least(32, 12))
            if took is not None:
                curve[name].append([batch, took.rate])
    return curve


def _firsts(sides: Sides, settings: Settings) -> Curve:
    curve: Curve = {"chatlocal": [], "generate": []}
    for number, length in enumerate(lengths(settings)):
        for name in curve:
            seconds = sides.call(name, "long_first", length, 3 + 7 * number)
            if seconds is not None:
                curve[name].append([length, seconds])
    return curve


def _steps(sides: Sides, settings: Settings) -> Curve:
    curve: Curve = {"chatlocal": [], "bare forward": []}
    for number, length in enumerate(lengths(settings)):
        for name in curve:
            # Behind the prompts that the first ids were timed with, which need not be read again.
            seconds = sides.call(name, "step", 1, length - 16, settings.least(12, 6), 3 + 7 * number)
            if seconds is not None:
                curve[name].append([length, 1000 * seconds])
    return curve


def _lines(curves: dict[str, Curve], missing: dict[str, str]) -> list[Line]:
    lines = []
    for key, what, unit, other, better in (
        ("rate", "{:.0f} at once", "tokens/s", "generate", "more"),
        ("first", "first id behind {:,.0f} ids", "s", "generate", "less"),
        ("step", "a step behind {:,.0f} ids", "ms", "bare forward", "of"),
    ):
        ours, theirs = dict(curves[key]["chatlocal"]), dict(curves[key][other])  # type: ignore[arg-type]
        last: Any = max([*ours, *theirs], default=None)
        note = missing.get("chatlocal", missing.get(other, "the last point of the curve"))
        title = "nothing" if last is None else what.format(last)
        lines.append(Line(ROW, title, unit, ours.get(last), other, theirs.get(last), better, note))
    return lines
