"""A regex as Python's `re.fullmatch` reads it, for compilers that speak Rust's dialect."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\.|\[\^?\]?|.", re.DOTALL)

# Rust's \w takes marks and joiners that Python's does not, and its \s lacks four separators.
_WORD = r"\p{L}\p{N}_"
_SPACE = r"\s\x1c-\x1f"


def rust_pattern(pattern: str) -> str:
    """The same pattern without anchors at its ends and with Python's \\w, \\W, \\s and \\S."""
    out: list[str] = []
    in_class = False
    for token in _TOKEN.findall(_unanchored(pattern)):
        in_class = token != "]" if in_class else token.startswith("[")
        named = {"w": _WORD, "s": _SPACE}.get(token[1:].lower()) if token.startswith("\\") else None
        if named is None:
            out.append(token)
        elif token[1].isupper():
            out.append(f"[^{named}]")
        else:
            out.append(named if in_class else f"[{named}]")
    return "".join(out)


def _unanchored(pattern: str) -> str:
    """Without `^` in front and `$` behind, which a whole-text match implies; not where they belong to a branch."""
    if _has_branches(pattern):
        return pattern
    pattern = pattern.removeprefix("^")
    escaped = len(pattern) - 1 - len(pattern[:-1].rstrip("\\"))
    return pattern[:-1] if pattern.endswith("$") and escaped % 2 == 0 else pattern


def _has_branches(pattern: str) -> bool:
    """Whether there is a `|` outside every group and class."""
    depth, in_class, escaped = 0, False, False
    for char in pattern:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            return True
    return False
