"""Neutral content: look-alikes of control tokens give way to single private-use characters while a template works.

What a template writes afterwards can be cut at control tokens, for only its own are left; then the content comes back.
One character each keeps trimming, splitting and slicing from cutting a stand-in in two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families.prefixes import common_prefix
from chatlocal.engine.families.prompt import Markup, Text

# The two supplementary private-use planes.
_FIRST, _LAST = 0xF0000, 0x10FFFD
_PRIVATE = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_SPELLED = re.compile(r"\\U(000[fF][0-9a-fA-F]{4}|0010[0-9a-fA-F]{4})")


class Neutralizer:
    """Stand-ins for one conversation. `control` are all control tokens, `inputs` everything that will be shown to it.

    Characters that the inputs use themselves are never stand-ins, so nothing that a user writes is taken for one.
    `careful`: the characters that control tokens begin with give way too, wherever they stand. Then a template may even
    put a token together from pieces of content, and none comes out.
    """

    def __init__(self, control: Iterable[str], inputs: Any, *, careful: bool = False) -> None:
        self._control = _look_alikes(tuple(control))
        self._careful = careful
        self._inputs = tuple(strings(inputs))
        self._taken = {char for text in self._inputs for char in _PRIVATE.findall(text)}
        self._free = _FIRST
        self._stands_for: dict[str, str] = {}
        self._stand_ins: dict[str, str] = {}

    def neutral(self, value: Any, *, keep: frozenset[str] = frozenset(), edges: bool = False) -> Any:
        """A copy of plain data (text, numbers, lists, dicts) without control tokens, except those in `keep`.

        `edges`: also what could become a control token with what a template puts beside it: a piece of one at either
        end of a text, or the whole text. UnsupportedInput for anything that is not plain data.
        """
        if isinstance(value, str):
            text = self._control.whole.sub(
                lambda found: found[0] if found[0] in keep else self._stand_in(found[0]), str.__str__(value)
            )
            text = self._neutral_edges(text, tuple(keep)) if edges else text
            return self._without_beginnings(text, keep) if self._careful else text
        if isinstance(value, Mapping):
            return {
                self.neutral(key, keep=keep): self.neutral(item, keep=keep, edges=edges and key == "text")
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.neutral(item, keep=keep, edges=edges) for item in value]
        if value is None or type(value) in (bool, int, float):
            return value
        raise UnsupportedInput(
            f"Chat templates are given text, numbers, lists and dicts, and here is a {type(value).__name__} among them"
            f" ({value!r}): write it as one of these."
        )

    def cut(self, rendered: str, special: frozenset[str] | None = None) -> tuple[Markup | Text, ...]:
        """What a template wrote, cut at control tokens, with the content back in its place.

        `special` are those that the tokenizer marks special, None for all.
        """
        pieces = self._control.whole.split(rendered)
        return tuple(
            Markup(piece, special is None or piece in special) if place % 2 else Text(self.restored(piece))
            for place, piece in enumerate(pieces)
            if piece
        )

    def restored(self, text: str) -> str:
        """The text with the content in place of its stand-ins."""
        if not self._stands_for:
            return text
        # Where a template prints a list or a dict, Python spells the character out.
        text = _SPELLED.sub(self._spelled, text)
        return _PRIVATE.sub(lambda found: self._stands_for.get(found[0], found[0]), text)

    def could_be_put_together(self) -> bool:
        """Whether content has a character that control tokens begin with."""
        begins = self._control.begins
        return begins is not None and any(begins.search(text) for text in self._inputs)

    def _without_beginnings(self, text: str, keep: frozenset[str]) -> str:
        begins = self._control.begins
        if begins is None:
            return text
        kept = "|".join(map(re.escape, sorted(keep, key=len, reverse=True)))
        pattern = re.compile(f"{kept}|{begins.pattern}") if kept else begins
        return pattern.sub(lambda found: found[0] if found[0] in keep else self._stand_in(found[0]), text)

    def _spelled(self, found: re.Match[str]) -> str:
        content = self._stands_for.get(chr(int(found[1], 16)))
        return found[0] if content is None else repr(content)[1:-1]

    def _stand_in(self, content: str) -> str:
        if content not in self._stand_ins:
            while chr(self._free) in self._taken or any(f"U{self._free:08x}" in text for text in self._inputs):
                self._free += 1
            if self._free > _LAST:
                raise UnsupportedInput("The messages use every private-use character of Unicode: leave some out.")
            self._stand_ins[content] = chr(self._free)
            self._stands_for[chr(self._free)] = content
            self._free += 1
        return self._stand_ins[content]

    def _neutral_edges(self, text: str, keep: tuple[str, ...]) -> str:
        control = self._control
        if text in keep or not text or text.isspace():
            return text
        if len(text) < control.longest and text in control.joined:
            return self._stand_in(text)
        if not text.endswith(keep):
            size = _longest(control.heads, (text[-size:] for size in range(min(control.longest, len(text)), 0, -1)))
            text = text[: len(text) - size] + (self._stand_in(text[len(text) - size :]) if size else "")
        if not text.startswith(keep):
            size = _longest(control.tails, (text[:size] for size in range(min(control.longest, len(text)), 0, -1)))
            text = (self._stand_in(text[:size]) if size else "") + text[size:]
        return text


def _longest(pieces: frozenset[str], candidates: Iterable[str]) -> int:
    """The length of the first candidate that is one of the pieces, 0 if none is."""
    return next((len(candidate) for candidate in candidates if candidate in pieces), 0)


@dataclass(frozen=True, slots=True)
class _LookAlikes:
    """What of a text is a control token or part of one; made once for a tokenizer and template.

    `whole` finds the longest token at the leftmost place, as tokenizers do, `begins` the characters that tokens begin
    with, letters and digits aside. `heads` and `tails` are proper beginnings
    and ends, white space aside, `longest` is the length of the longest of them, `joined` all tokens.
    """

    whole: re.Pattern[str]
    begins: re.Pattern[str] | None
    heads: frozenset[str]
    tails: frozenset[str]
    longest: int
    joined: str


@lru_cache(maxsize=16)
def _look_alikes(control: tuple[str, ...]) -> _LookAlikes:
    heads = {token[:size] for token in control for size in range(1, len(token))}
    tails = {token[size:] for token in control for size in range(1, len(token))}
    return _LookAlikes(
        whole=re.compile(f"({_pattern(control)})"),
        begins=_begins(control),
        heads=frozenset(head for head in heads if not head.isspace()),
        tails=frozenset(tail for tail in tails if not tail.isspace()),
        longest=max(map(len, control), default=1) - 1,
        joined="\0".join(control),
    )


def _begins(control: tuple[str, ...]) -> re.Pattern[str] | None:
    first = sorted({token[0] for token in control if token and not token[0].isalnum() and not token[0].isspace()})
    return re.compile(f"[{''.join(map(re.escape, first))}]") if first else None


def _pattern(texts: Iterable[str]) -> str:
    """A pattern for the texts as a tree of their beginnings: a search looks at each character about once.

    An alternative for each of hundreds of tokens would be tried at every "<".
    """
    by_head: dict[str, set[str]] = {}
    for text in sorted(set(texts)):
        by_head.setdefault(text[:1], set()).add(text)
    ends = by_head.pop("", None) is not None
    branches = []
    for same_head in by_head.values():
        head = common_prefix(same_head)
        branches.append(re.escape(head) + _pattern(text[len(head) :] for text in same_head))
    if not branches:
        return "" if ends else "(?!)"
    tree = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{tree}?" if ends else tree


def strings(value: Any) -> Iterable[str]:
    """Every text in plain data, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)
