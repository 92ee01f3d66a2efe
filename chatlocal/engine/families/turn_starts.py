"""Where an answer ends that ends in plain text: at the words that would begin another turn.

They are looked for in what the model writes, so they must be what a template alone would write there: a line or label
with a letter and a sign in it, never white space, punctuation or a plain word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chatlocal.engine.families.prefixes import common_prefix

# Characters without white space: in the middle of a line, less is too likely to be something that the answer says.
_SHORTEST, _SHORTEST_INLINE = 2, 4
# Where the tokenizer has no such token, "<|end|>" in front of the next turn is enough by itself.
_MARK = re.compile(r"<[^<>\s]+>")


def turn_starts(between: Sequence[str]) -> tuple[str, ...]:
    """The stops, from what a template writes between an answer and the user's next text, in several places.

    The places may differ in a number: what is the same in all of them counts, from the front and from the back.
    """
    behind = common_prefix([text[::-1] for text in between])[::-1]
    body = behind.rstrip()
    _, newline, line = body.rpartition("\n")
    last = newline + line + behind[len(body) :] if newline else ""
    return tuple(dict.fromkeys((*answer_ends(between), *_line(last))))


def answer_ends(between: Sequence[str]) -> tuple[str, ...]:
    """The stops, from what is written between an answer and the control token that ends the turn."""
    return tuple(dict.fromkeys(_line(common_prefix(between))))


def _line(text: str) -> Iterator[str]:
    """The first line of a text that follows an answer, as it stands and at the start of a line.

    Models do not always keep to a template's white space. Nothing when an answer could well contain that line.
    """
    body = text.lstrip()
    space = text[: len(text) - len(body)]
    line, newline, _ = body.partition("\n")
    mark = _MARK.match(line)
    line = mark[0] if mark else line.rstrip()
    if not any(map(str.isalnum, line)):
        return
    if all(char.isalnum() or char.isspace() for char in line):
        if "\n" not in space or not newline:
            return
        line += "\n"  # a plain word, but all of a line
    elif len(line) < (_SHORTEST if "\n" in space else _SHORTEST_INLINE):
        return
    yield space + line
    yield "\n" + line
