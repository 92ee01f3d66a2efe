"""Row `arrival`: a prompt of 2,000 ids arrives while 8 streams are running. How long is the longest gap in a stream?"""

from __future__ import annotations

from speed.children import Child, Sides
from speed.lines import Line, median
from speed.ours import Chatlocal
from speed.settings import Settings

ROW = "arrival"
STREAMS = 8
LENGTH = 2000


def measure(settings: Settings, prompts: list[list[int]]) -> list[Line]:
    length = settings.tokens(LENGTH)
    found = []
    with Sides({"chatlocal": Child(Chatlocal, settings, prefix_reuse=False)}) as sides:
        alone = sides.call("chatlocal", "long_first", length, 3)
        for _ in range(settings.rounds):
            measured = sides.call("chatlocal", "arrival", STREAMS, prompts, length, settings.least(32, 12))
            if measured is not None:
                found.append(measured)
        missing = sides.missing.get("chatlocal", "")
    figures = {name: median(one[name] for one in found) for name in ("step", "longest", "usual", "first")}
    milliseconds = {name: None if value is None else 1000 * value for name, value in figures.items()}
    usual = milliseconds["usual"]
    note = missing or f"the longest gap before the prompt came: {usual:.0f} ms"
    what = f"a prompt of {length:,} ids among {STREAMS} streams"
    longest, step = milliseconds["longest"], milliseconds["step"]
    return [
        Line(ROW, f"{what}: longest gap of a stream", "ms", longest, "median step of the streams", step, "of", note),
        Line(ROW, f"{what}: its first id", "s", figures["first"], "alone", alone, "of", missing),
    ]
