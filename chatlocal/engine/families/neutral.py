"""Neutral content: look-alikes of control tokens give way to single private-use characters while a template works.

What a template writes afterwards can be cut at control tokens, for only its own are left; then the content comes back.
One character each keeps trimming, splitting and slicing from cutting a stand-in in two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families.prompt import Markup, Text

# The two supplementary private-use planes.
_FIRST, _LAST = 0xF0000, 0x10FFFD
_PRIVATE = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")


class Neutralizer:
    """Stand-ins for one conversation. `control` are all control tokens, `inputs` everything that will be shown to it.

    Characters that the inputs use themselves are never stand-ins, so nothing that a user writes is taken for one.
    """

    def __init__(self, control: Iterable[str], inputs: Any) -> None:
        texts = list(_strings(inputs))
        everything = "\n".join(texts)
        self._control = sorted(control, key=lambda token: (-len(token), token))
        self._present = [token for token in self._control if token in everything]
        self._taken = set(_PRIVATE.findall(everything))
        self._free = _FIRST
        self._stands_for: dict[str, str] = {}
        self._stand_ins: dict[str, str] = {}
        self._heads, self._tails, self._longest = _edges(tuple(self._control))
        self._joined = "\0".join(self._control)

    def neutral(self, value: Any, *, keep: frozenset[str] = frozenset(), edges: bool = False) -> Any:
        """A copy of plain data (text, lists, dicts) without control tokens, except those in `keep`.

        `edges`: also what could become a control token with what a template puts beside it: a piece of one at either
        end of a text, or the whole text.
        """
        if isinstance(value, str):
            for token in self._present:
                if token not in keep and token in value:
                    value = value.replace(token, self._stand_in(token))
            return self._neutral_edges(value) if edges else value
        if isinstance(value, Mapping):
            return {self.neutral(key, keep=keep): self.neutral(item, keep=keep) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.neutral(item, keep=keep) for item in value]
        return value

    def cut(self, rendered: str) -> tuple[Markup | Text, ...]:
        """What a template wrote, cut at control tokens, with the content back in its place."""
        own = [token for token in self._control if token in rendered]
        if not own:
            return (Text(self.restored(rendered)),) if rendered else ()
        pieces = re.split("(" + "|".join(map(re.escape, own)) + ")", rendered)
        return tuple(
            Markup(piece) if place % 2 else Text(self.restored(piece)) for place, piece in enumerate(pieces) if piece
        )

    def restored(self, text: str) -> str:
        """The text with the content in place of its stand-ins."""
        if not self._stands_for:
            return text
        return _PRIVATE.sub(lambda found: self._stands_for.get(found[0], found[0]), text)

    def _stand_in(self, content: str) -> str:
        if content not in self._stand_ins:
            while chr(self._free) in self._taken:
                self._free += 1
            if self._free > _LAST:
                raise UnsupportedInput("The messages use every private-use character of Unicode: leave some out.")
            self._stand_ins[content] = chr(self._free)
            self._stands_for[chr(self._free)] = content
            self._free += 1
        return self._stand_ins[content]

    def _neutral_edges(self, text: str) -> str:
        if len(text) < self._longest and text in self._joined and text and not text.isspace():
            return self._stand_in(text)
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[-size:] in self._heads:
                text = text[:-size] + self._stand_in(text[-size:])
                break
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[:size] in self._tails:
                return self._stand_in(text[:size]) + text[size:]
        return text


@lru_cache(maxsize=16)
def _edges(control: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str], int]:
    """Proper beginnings and proper ends of control tokens, white space aside, and the length of the longest."""
    heads = {token[:size] for token in control for size in range(1, len(token))}
    tails = {token[size:] for token in control for size in range(1, len(token))}
    longest = max((len(token) for token in control), default=1) - 1
    return frozenset(heads - _blank(heads)), frozenset(tails - _blank(tails)), longest


def _blank(texts: set[str]) -> set[str]:
    return {text for text in texts if text.isspace()}


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
