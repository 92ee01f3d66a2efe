"""Patterns as JSON Schema means them, that may match anywhere in a text, as ones that match all of a text."""

from __future__ import annotations

import re

from chatlocal.engine.constraints.patterns import translate

_TOKEN = re.compile(r"\\.|.", re.DOTALL)
_ASCII = {"\\d": "0-9", "\\w": "A-Za-z0-9_", "\\s": r" \t\r\n\f\v"}
_ESCAPE = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)
_INNERMOST = re.compile(r"\((?![^()]*[\^$])[^()]*\)")


def whole_pattern(pattern: str) -> str | None:
    """A pattern that may match anywhere as one that matches all of a text; None where that takes more than its ends."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    core = pattern[begins : len(pattern) - ends]
    plain = _outside(core)
    core = translate(core) or ""
    if not core or "^" in plain or "$" in plain or ((begins or ends) and "|" in plain):
        return None
    return f"{'' if begins else '(?s:.*)'}(?:{core}){'' if ends else '(?s:.*)'}"


def _outside(pattern: str) -> str:
    """A pattern without its escapes, classes and groups."""
    plain = _ESCAPE.sub("", pattern)
    while plain != (plain := _INNERMOST.sub("", plain)):
        pass
    return plain


def ascii_classes(pattern: str) -> str | None:
    """A pattern whose \\d, \\w and \\s are ECMA's, of ASCII alone; None where one is negated inside of a class."""
    out: list[str] = []
    inside = False
    for token in _TOKEN.findall(pattern):
        if inside and token in ("\\D", "\\W", "\\S"):
            return None
        inside = (inside or token == "[") and token != "]"
        characters = _ASCII.get(token.lower() if token[1:] in ("D", "W", "S") else token)
        if characters is None:
            out.append(token)
        else:
            out.append(characters if inside else f"[{'^' if token[1:].isupper() else ''}{characters}]")
    return "".join(out)
