"""A short way to bring a text under a constraint to an end.

Found step by step, without looking back: forced text is written as the tokenizer writes it, and where there is a choice
the token that closes most comes first (the brackets and quotes of JSON, then constants, numbers, texts, and last what
opens anew). It is the shortest way for nearly all schemas and a short one for the rest; where a pattern asks for
something that closing does not bring, kinds of tokens are tried in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.json_place import Place, after
from chatlocal.engine.constraints.protocol import Cursor, Tokens, per_tokens

# Ranks of a token: the lower the sooner. They are so far apart that the lengths of tokens (longer ones first) and the
# times that a kind was tried in one string or number decide between neighbours.
_STEP = 1000
_LONGEST = 400
_TRIED = 2 * _STEP
_ENDS, _CLOSES, _QUOTE, _GOES_ON, _LATE_QUOTE, _CONSTANT, _TEXT, _SINGLE, _LIST, _OBJECT, _SIGN, _OTHER = range(12)
# Marks that end something, such as </tool_call> and <|tool_calls_end|>.
_END_MARK = re.compile(r"/|end", re.IGNORECASE)
_STRUCTURE = b'"}]),: '
# Tokens in one string or number that lead to no end.
_PATIENCE = 100
# How many choices are tried otherwise for the shortest text, and among how many tokens each.
_FIRST_CHOICES = 3
_FEW = 48


def ending(cursor: Cursor, tokens: Tokens, limit: int) -> list[int] | None:
    """Ids that bring the text of a cursor to an end; None where this way needs more than `limit`, or leads nowhere.

    The cursor is moved.
    """
    ranks = _ranks(tokens)
    ids: list[int] = []
    tried: dict[int, int] = {}

    def take(id: int) -> bool:
        taken = cursor.advance(id)
        if taken:
            ids.append(id)
        return taken

    while not cursor.complete:
        if len(ids) > limit or sum(tried.values()) > _PATIENCE:
            return None
        known = cursor.way_out()
        if (known and all(map(take, known))) or _write_forced(cursor, tokens, take):
            tried.clear()
            continue
        allowed = np.zeros(len(tokens.texts), dtype=np.bool_)
        cursor.fill(allowed)
        inside = cursor.place.quoted
        found = ranks.best(np.flatnonzero(allowed), inside, tried)
        if found is None or not take(found):
            return None
        kind = ranks.kind(found, inside)
        if kind <= _LATE_QUOTE or not (cursor.place.quoted or cursor.place.number):
            tried.clear()
        else:
            tried[kind] = tried.get(kind, 0) + 1
    return ids if len(ids) <= limit else None


def shortest(start: Cursor, tokens: Tokens, limit: int) -> list[int] | None:
    """The ids of a shortest text of a grammar, or of one that is nearly so; as `ending`, at the start of a text.

    Here the first choices are tried one by one, such as those between tools, or between the kinds of a union.
    """
    best: list[int] | None = None
    for branch in start.branches():
        found = ending(branch.copy(), tokens, limit)
        while found:
            better = _other_choices(branch, tokens, found)
            if better is None:
                break
            found = better
        if found is not None and (best is None or len(found) < len(best)):
            best = found
    return best


def _other_choices(start: Cursor, tokens: Tokens, known: list[int]) -> list[int] | None:
    """A shorter way than a known one that leaves it at one of its first choices; None when there is none."""
    best = known
    cursor = start.copy()
    choices = 0
    for place, taken in enumerate(known):
        allowed = np.zeros(len(tokens.texts), dtype=np.bool_)
        cursor.fill(allowed)
        others = np.flatnonzero(allowed)
        if 1 < len(others) <= _FEW:
            choices += 1
            for id in others.tolist():
                tried = cursor.copy()
                if id != taken and tried.advance(id):
                    rest = ending(tried, tokens, len(best) - place - 2)
                    if rest is not None:
                        best = [*known[:place], id, *rest]
        if choices == _FIRST_CHOICES or not cursor.advance(taken):
            break
    return best if len(best) < len(known) else None


def _write_forced(cursor: Cursor, tokens: Tokens, take: Callable[[int], bool]) -> bool:
    """Take the ids of what must follow; False when there is nothing, or it is no whole character."""
    text = cursor.forced_bytes().decode(errors="ignore")
    taken = False
    for id in tokens.encode(_up_to_known(cursor, tokens, text)) if text else ():
        if cursor.complete or not take(id):
            break
        taken = True
        if cursor.place.begins_string:  # what is best written in it may be known
            break
    return taken


def _up_to_known(cursor: Cursor, tokens: Tokens, text: str) -> str:
    """A text that must follow, up to where a value begins in it for which a way is known."""
    place: Place | None = cursor.place
    for count, character in enumerate(text[:-1], start=1):
        place = None if place is None else after(place, character.encode())
        if place is not None and place.begins_value and text[count] not in " \t\r\n":
            there = cursor.copy()
            if all(map(there.advance, tokens.encode(text[:count]))) and there.way_out():
                return text[:count]
    return text


class _Ranks:
    """The ranks of all tokens, int64 [tokens], inside of strings and outside, and the kinds they come from."""

    def __init__(self, tokens: Tokens) -> None:
        # Where the vocabulary has a quote with the brackets behind it, one by itself says that something goes on.
        quote = _LATE_QUOTE if {b'"}', b'"]'} <= set(tokens.texts) else _QUOTE
        self._kinds = {
            inside: np.array([_kind(text, inside, quote) for text in tokens.texts], dtype=np.int64)
            for inside in (True, False)
        }
        for name, id in tokens.named.items():
            for kinds in self._kinds.values():
                kinds[id] = _ENDS if _END_MARK.search(name) else _OBJECT
        lengths = np.array([min(len(text), _LONGEST) for text in tokens.texts], dtype=np.int64)
        # Digits and, in strings, other characters that stand alone: their length says nothing.
        self._ranks = {
            inside: kinds * _STEP - np.where((kinds == _SINGLE) | (kinds == _LIST), 0, lengths)
            for inside, kinds in self._kinds.items()
        }

    def best(self, ids: NDArray[np.int64], inside: bool, tried: dict[int, int]) -> int | None:
        """The id to take first; `tried` says how often each kind was taken since the string or number began."""
        if not len(ids):
            return None
        ranks = self._ranks[inside][ids]
        kinds = self._kinds[inside][ids]
        for kind, times in tried.items():
            of_kind = np.flatnonzero(kinds == kind)
            ranks[of_kind] += times * _TRIED
            # Not the same one again: each time another of its kind.
            if len(of_kind) > 1:
                order = of_kind[np.argsort(ranks[of_kind], kind="stable")]
                ranks[order[: times % len(order)]] += _TRIED
        return int(ids[ranks.argmin()])

    def kind(self, id: int, inside: bool) -> int:
        return int(self._kinds[inside][id])


def _kind(text: bytes, inside: bool, quote: int) -> int:
    """What a token does for an end of JSON text; `quote` is the kind of one by itself that ends a string."""
    bare = text.strip(b" \t\r\n")
    if inside:
        if text == b'"':
            return quote
        if text[:1] == b'"' and not text.strip(_STRUCTURE):
            return _GOES_ON if b"," in text or b":" in text else _CLOSES
        if text.isalnum():
            return _TEXT
        return _SINGLE if len(text) == 1 and text > b" " and text != b"\\" else _OTHER
    if text and not bare:  # a line break ends a text of one line
        return _CLOSES if b"\n" in text else _OTHER
    return _outside(bare)


@cache
def _outside(bare: bytes) -> int:
    if not bare.strip(b"}])"):
        return _CLOSES
    if bare[:1] in (b"}", b"]", b")") or (bare[:1] in (b",", b":") and not bare.strip(_STRUCTURE)):
        return _GOES_ON
    if bare in (b"null", b"true", b"false", b'""'):
        return _CONSTANT
    if len(bare) == 1 and bare.isdigit():
        return _SINGLE
    return {b"-": _SIGN, b"[": _LIST, b"{": _OBJECT, b"(": _OBJECT, b"<": _OBJECT}.get(bare[:1], _TEXT)


_ranks = per_tokens(_Ranks)
