"""Row `chat`: ten turns over a long history, the time to the first text with and without prefix reuse."""

from __future__ import annotations

from speed.children import Child, Sides
from speed.lines import Line, median
from speed.ours import Chatlocal
from speed.peers import Generate
from speed.settings import Settings

ROW = "chat"
HISTORY = 2000
QUESTIONS = (
    "Which of the notes is about a ferry?", "What does it say?", "And the one about the invoice?",
    "Who is the plumber?", "Which notes name a town?", "What costs the most?", "Which note is the shortest?",
    "Is there a teacher?", "What does he or she teach?", "Thank you. How many notes are there?",
)  # fmt: skip


def measure(settings: Settings) -> list[Line]:
    length = settings.tokens(HISTORY)
    questions = list(QUESTIONS[: settings.least(10, 3)])
    makers = {
        "reuse": Child(Chatlocal, settings, prefix_reuse=True),
        "none": Child(Chatlocal, settings, prefix_reuse=False),
        "generate": Child(Generate, settings),
    }
    with Sides(makers) as sides:
        for name in makers:
            warm = {"reuse": "long_first", "none": "long_first", "generate": "long_first"}[name]
            sides.call(name, warm, 64, 11)
        talks = {name: sides.call(name, "chat", length, questions, settings.least(24, 8)) for name in ("reuse", "none")}
        spoken = next((talk["prompts"] for talk in talks.values() if talk), None)
        theirs = sides.call("generate", "first", spoken[1]) if spoken else None
        missing = sides.missing
    firsts = {name: talk["firsts"] if talk else [] for name, talk in talks.items()}
    second = {name: times[1] if len(times) > 1 else None for name, times in firsts.items()}
    later = {name: median(times[1:]) for name, times in firsts.items()}
    why = missing.get("reuse", missing.get("none", ""))
    over = f"first text of an answer over {length:,} ids of history"
    last = f"{over}, turns 2 to {len(questions)}"
    return [
        Line(ROW, f"{over}, turn 2", "s", second["reuse"], "no prefix reuse", second["none"], "less", why),
        Line(ROW, last, "s", later["reuse"], "no prefix reuse", later["none"], "less", why),
        Line(
            ROW, f"{over}, turn 2", "s", second["reuse"], "generate", theirs, "less", why or missing.get("generate", "")
        ),
    ]
