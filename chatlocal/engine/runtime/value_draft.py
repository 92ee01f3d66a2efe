"""How a JSON value that has been begun may go on, as ids: to its end as in the text of the prompt, and from there on
over what the grammar leaves no choice about, up to where the next value begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chatlocal.engine.constraints.constraint import ConstraintState
from chatlocal.engine.constraints.protocol import Tokens, per_tokens
from chatlocal.engine.errors import ChatLocalError
from chatlocal.engine.runtime.source_text import Continuation, SourceText

# Ids that are looked back over for the beginning of a value.
_BACK = 48
# Signs and forced texts that are put behind the end of a value at most.
_LINKS = 8


@dataclass(slots=True)
class _Guess:
    """Bytes that may come next, the first `copied` of them from the source.

    `guesses` are the places where something about them was guessed, in bytes from their start, and what.
    """

    text: bytes = b""
    copied: int = 0
    guesses: list[tuple[int, str]] = field(default_factory=list)


Draft = tuple[list[int], list[str | None]]
"""Ids, and for each of them what would be guessed right with it, None where it follows from those before it."""


def value_draft(state: ConstraintState, source: SourceText, likely: list[int]) -> Draft | None:
    """What may follow behind the ids `likely`.

    None where the state is not in a JSON value, before one or behind one, or where the grammar meets a limit. The state
    is not changed.
    """
    try:
        return _drafted(state, source, likely)
    except ChatLocalError:
        return None


def _drafted(state: ConstraintState, source: SourceText, likely: list[int]) -> Draft | None:
    there = state.copy()
    place = there.place
    if likely:
        if not all(_takes(there, id) for id in likely):
            return None
        place = there.place
        written, value, quoted = len(likely), b"", place.quoted
        further = source.next_value(quoted) if place.begins_string or (place.begins_value and not quoted) else None
        if further is None:
            return None
        before, copied = likely, "next one"
    elif place.quoted or place.number:
        begun = _begun(state)
        if begun is None:
            return None
        written, value, quoted = begun
        further = source.going_on(value, quoted) or Continuation(b"", "what is not there")
        before = list(state.ids[-written:])
        copied = "copied" if len(value) > 2 else f"copied behind {len(value)}"
    elif place.begins_value or not place.open:
        return None
    else:
        further, before, quoted, copied = Continuation(b"", ""), list(state.ids[-1:]), False, ""
    guess = _Guess(further.text, len(further.text), [(0, copied)] if further.text else [])
    if further.text and not _move(there, further.text):
        return None
    if further.certain:
        guess.guesses.append((len(guess.text), f"end of {further.certain}"))
    _close(there, quoted, guess)
    return _spelled(state.tokens, before, guess) if guess.text else None


def _begun(state: ConstraintState) -> tuple[int, bytes, bool] | None:
    """How many ids hold the value that has been begun, its text, and whether it is a string."""
    place = state.place
    if place.escaped or not (place.quoted or place.number):
        return None
    texts = state.tokens.texts
    text = b""
    for count, id in enumerate(reversed(state.ids[-_BACK:]), 1):
        if not 0 <= id < len(texts):
            return None
        text = texts[id] + text
        if b"\\" in text:
            return None
        if not place.quoted and len(text) >= len(place.number):
            return count, text[len(text) - len(place.number) :], False
        if place.quoted and b'"' in texts[id]:
            value = text[text.rindex(b'"') + 1 :]
            return (count, value, True) if value else None
    return None


def _close(state: ConstraintState, quoted: bool, guess: _Guess) -> None:
    """Add what ends the value and what stands before the next one."""
    signs = _signs(state.tokens)
    if quoted and not _add(state, b'"', guess):
        return
    for _ in range(_LINKS):
        if state.done:
            return
        forced = state.forced_bytes()
        if forced:
            if not _add(state, forced, guess):
                return
            continue
        place = state.place
        if place.quoted or place.begins_value:
            return
        fitting = [sign for sign in (b",", b"}", b"]") if sign in signs and _takes(state.copy(), signs[sign])]
        if not fitting:
            return
        if len(fitting) > 1:
            guess.guesses.append((len(guess.text), "one more"))
        _add(state, fitting[0], guess)


def _add(state: ConstraintState, text: bytes, guess: _Guess) -> bool:
    if not _move(state, text):
        return False
    guess.text += text
    return True


def _move(state: ConstraintState, text: bytes) -> bool:
    try:
        for id in state.tokens.encode(text.decode(errors="ignore")):
            state.advance(id)
    except ChatLocalError:
        return False
    return True


def _takes(state: ConstraintState, id: int) -> bool:
    try:
        state.advance(id)
    except ChatLocalError:
        return False
    return True


def _spelled(tokens: Tokens, before: list[int], guess: _Guess) -> Draft:
    """The ids of a guess as the tokenizer writes them behind the ids `before`, where it writes those so too."""
    start = b"".join(tokens.texts[id] for id in before)
    ids = tokens.encode((start + guess.text).decode(errors="ignore"))
    whole = ids[: len(before)] == before
    ids = ids[len(before) :] if whole else tokens.encode(guess.text.decode(errors="ignore"))
    return ids, _kinds([len(tokens.texts[id]) for id in ids], guess)


def _kinds(lengths: list[int], guess: _Guess) -> list[str | None]:
    """For each id the last thing that was guessed within it."""
    kinds: list[str | None] = []
    waiting = list(guess.guesses)
    place = 0
    for length in lengths:
        kind = "copied on" if 0 < place < guess.copied else None
        place += length
        while waiting and waiting[0][0] < place:
            kind = waiting.pop(0)[1]
        kinds.append(kind)
    return kinds


@per_tokens
def _signs(tokens: Tokens) -> dict[bytes, int]:
    return {text: id for id, text in enumerate(tokens.texts) if text in (b",", b"}", b"]", b'"')}
