"""Control tokens that someone typed, taken for control tokens: what is never done unless it is asked for.

It is unsafe: whoever writes a text in the conversation can end their turn and speak as the system or the assistant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from chatlocal.engine.families.neutral import Neutralizer
from chatlocal.engine.families.prompt import Markup, Part, Text


def with_typed_control_tokens(parts: Iterable[Part], special: Iterable[str], markup: Iterable[str]) -> Iterator[Part]:
    """The parts of a prompt, with each text cut at the control tokens of the family; see NativeFamily for the two."""
    special = frozenset(special)
    neutralizer = Neutralizer((*special, *markup), ())
    for part in parts:
        pieces = neutralizer.cut(part.text, special) if isinstance(part, Text) else ()
        if isinstance(part, Markup) or not any(isinstance(piece, Markup) for piece in pieces):
            yield part
            continue
        for place, piece in enumerate(pieces):
            yield (
                piece if isinstance(piece, Markup) else replace(part, text=piece.text, gap=None if place else part.gap)
            )
