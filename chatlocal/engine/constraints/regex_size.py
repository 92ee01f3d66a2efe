"""How large a regex is once its counted repetitions are written out, found without compiling it.

Compilers write them out: `((a{100}){100}){100}` is a million letters, minutes of work and gigabytes.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\[pPxuU]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)


def expanded_size(pattern: str) -> int:
    """The number of characters and classes, each counted as often as the most its repetitions demand."""
    groups = [0]
    last = 0  # the size of what a repetition would repeat
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            groups.append(0)
            last = 0
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[1] is not None:
            times = max(int(token[1]), int(token[2] or 0))
            groups[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
        elif text not in "*+?|^$":
            last = 1
            groups[-1] += 1
    return sum(groups)
