"""Regular expressions as JSON Schema means them (ECMA's), written for the grammar backend (Rust's)."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from llguidance import LLMatcher

from chatlocal.engine.constraints.protocol import TooComplex
from chatlocal.engine.constraints.regex_size import expanded_size

MAX_SIZE = 20_000

_TOKEN = re.compile(r"\\[pP]\{[^}]*\}|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\.|.", re.DOTALL)
_CONTROL = re.compile(r"\\x[01].|\\u00[01].|\\[0abefnrtv]|[\x00-\x1f]", re.DOTALL)


@lru_cache(maxsize=1024)
def translate(pattern: str) -> str | None:
    """The pattern in the backend's dialect, None for what it lacks, such as look-around. TooComplex where it is huge.

    Inside a class, `[`, `&&`, `--` and `~~` are ordinary characters in ECMA and operators in Rust.
    llguidance 1.9 lets any escape through, a quote's or a backslash's too, where a class holds every control character;
    so a negated class shuts out the null character, and a pattern whose other classes hold them is refused.
    """
    if expanded_size(pattern) > MAX_SIZE:
        raise TooComplex(f"the pattern {pattern[:80]!r} is longer than {MAX_SIZE:,} characters once written out")
    out: list[str] = []
    in_class = False
    place = 0
    while place < len(pattern):
        match = _TOKEN.match(pattern, place)
        assert match is not None  # any character matches
        token, place = match[0], match.end()
        if token.startswith(("\\P", "\\p{^")):
            return None
        if not in_class:
            in_class = token == "["
            if in_class:
                opening = "^" if pattern.startswith("^", place) else ""
                place += len(opening)
                literal = "\\]" if pattern.startswith("]", place) else ""
                place += bool(literal)
                token = f"[{opening}{literal}" + ("\\x00" if opening else "")
                negated = bool(opening)
        elif token == "]":
            in_class = False
        elif not negated and _CONTROL.fullmatch(token) and _opens_range(pattern, place):
            return None
        elif token in "[&~" or (token == "-" and pattern.startswith("-", place)):
            token = f"\\{token}"
        out.append(token)
    translated = "".join(out)
    return translated if _readable(translated) else None


def _opens_range(pattern: str, place: int) -> bool:
    return pattern.startswith("-", place) and not pattern.startswith("-]", place)


def _readable(pattern: str) -> bool:
    grammar = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    return not LLMatcher.validate_grammar_with_warnings(grammar)[0]
