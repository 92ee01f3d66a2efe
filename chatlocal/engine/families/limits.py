"""How much a chat template may use up: time, and the size of what it makes.

Python cannot be interrupted in the middle of an operation, so each one that could be long or make something large is
looked at before it runs (sandbox.py says where), and what it made is counted after.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, MappingView, Sequence, Set
from contextvars import ContextVar
from typing import Any

MAX_SECONDS = 30.0
MAX_OUTPUT = 32_000_000  # characters
# Bytes, about. A value counts with all that is in it, as often as it is in it: so long is its text.
_MAX_VALUE = 64_000_000
_MAX_MADE = 1_000_000_000  # bytes, about, of all values that one rendering makes
_MAX_BITS = 10_000  # of a whole number
_MAX_COMPARISONS = 1_000_000_000  # of characters, in methods that compare each with each
_MAX_SLOW = 100_000  # characters, for what takes the square of that time or writes every one many times over
_MAX_WIDTH = 1_000_000  # to which a text or a list is filled up
_MAX_ITEMS = 1_000_000  # of a list, also of the words of a text or its characters

_PER_TEXT, _PER_ITEM = 50, 16
_CONTAINERS: Any = (list, tuple, Mapping, MappingView, Set)
_COMPARING = frozenset({"rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip", "trim"})
_SLOW = frozenset({"pprint", "striptags", "urlize", "wordwrap", "xmlattr"})
_FILLING = frozenset({"batch", "indent", "round", "slice", "tojson", "truncate"})
_PIECEWISE = frozenset(
    {"batch", "groupby", "join", "list", "map", "max", "min", "random", "reject", "select", "slice", "sort", "sum"}
    | {"title", "unique", "wordcount"}
)
_WHITE = (*" \n\t\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",)
_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d*)(?:\.(\*|\d*))?")
_BRACES = re.compile(r"\{[^{}]*:[^{}]*(?:\d{7,}|\{)")

current_limits: ContextVar[Limits] = ContextVar("template_limits")
"""Those of the rendering that is going on."""


class LimitPassed(Exception):
    """A template went too far; callers of the sandbox see a TemplateError."""


class Limits:
    """The limits of one rendering: everything here raises LimitPassed when one is.

    What is made cannot be changed afterwards, so a size once found stays true.
    """

    def __init__(self) -> None:
        self._end = time.monotonic() + MAX_SECONDS
        self._made = 0
        # Size and depth by identity, with the value, whose identity is its own only for as long as it lives.
        self._known: dict[int, tuple[Any, int, int]] = {}

    def check_time(self) -> None:
        """Wherever a template may come by again and again."""
        if time.monotonic() > self._end:
            raise LimitPassed(f"The chat template ran longer than {MAX_SECONDS:.0f} seconds and was stopped.")

    def made(self, value: Any) -> Any:
        """The value, counted as one that was made just now."""
        self.check_time()
        size, _ = self._measured(value)
        if size > _MAX_VALUE:
            raise LimitPassed("The chat template makes too large a value.")
        if size > 1:
            self._made += size if isinstance(value, (str, bytes)) else _PER_ITEM * len(value)
            if self._made > _MAX_MADE:
                raise LimitPassed("The chat template makes too many large values.")
        return value

    def check_joined(self, texts: Iterable[str]) -> None:
        """Before texts become one."""
        if sum(map(len, texts)) > _MAX_VALUE:
            raise LimitPassed("The chat template makes too large a value.")

    def check_operation(self, operator: str, left: Any, right: Any) -> None:
        """Before `left operator right`."""
        for value in (left, right):
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                raise LimitPassed("The chat template computes with too large a number.")
        if operator == "**" and not (abs(left) <= 2**32 and abs(right) <= 64):
            raise LimitPassed("The chat template computes a power that is too large.")
        if operator == "%" and isinstance(left, str):
            self._check_percent(left, right)
        if operator == "+" and self._size(left) + self._size(right) > _MAX_VALUE:
            raise LimitPassed("The chat template makes too large a value.")
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(times, int):
                    self._check_repeated(value, times)

    def check_format(self, text: str, values: Any) -> None:
        """Before `text.format` of the values."""
        if _BRACES.search(text):
            raise LimitPassed("The chat template formats a text to too large a width, or to one that it computes.")
        self._check_repeated(values, text.count("{"))

    def check_method(self, owner: Any, name: str, args: Sequence[Any]) -> None:
        """Before a method of a value is called (or the filter of that name, with its value as the owner)."""
        self._check_numbers(name, args, MAX_OUTPUT)
        if not isinstance(owner, str):
            return
        texts = [arg for arg in args if isinstance(arg, str)]
        if name in _COMPARING and len(owner) * max(map(len, texts), default=0) > _MAX_COMPARISONS:
            raise LimitPassed("The chat template looks for too long a text in too long a text.")
        if name == "replace" and len(texts) == 2:
            self._check_repeated(texts[1], owner.count(texts[0]))
        if name == "join" and args:
            self._check_joining(owner, args[0])
        if name == "expandtabs":
            self._check_repeated(" " * max((8, *args)), owner.count("\t"))
        if name in ("split", "rsplit", "splitlines"):
            ends = texts if texts and texts[0] else _WHITE
            if sum(map(owner.count, ends)) > _MAX_ITEMS:
                raise LimitPassed(f"The chat template splits a text into more than {_MAX_ITEMS} pieces.")
        if name in _SLOW and len(owner) > _MAX_SLOW:
            raise LimitPassed(f"The chat template applies {name} to more than {_MAX_SLOW} characters.")

    def check_filter(self, name: str, value: Any, args: Sequence[Any]) -> None:
        """Before a filter is applied."""
        self.check_method(value, name, args)
        if name in _FILLING:
            self._check_numbers(name, args, _MAX_WIDTH)
        if name in _SLOW and self._size(value) > _MAX_SLOW + _PER_TEXT:
            raise LimitPassed(f"The chat template applies {name} to more than {_MAX_SLOW} characters.")
        if name in _SLOW and isinstance(value, str):
            for arg in args:
                self._check_repeated(arg, len(value))
        if name in _PIECEWISE and isinstance(value, str) and len(value) > _MAX_ITEMS:
            raise LimitPassed(f"The chat template applies {name} to a text of more than {_MAX_ITEMS} characters.")
        if name == "sum" and any(isinstance(arg, _CONTAINERS) for arg in args):
            raise LimitPassed("The chat template adds up lists with sum, which adds up numbers only.")
        if name == "format" and isinstance(value, str):
            self._check_percent(value, list(args))
        if name == "join":
            self._check_joining(next((arg for arg in args if isinstance(arg, str)), ""), value)
        if name in ("indent", "tojson"):
            size, depth = self._measured(value)
            lines = value.count("\n") + 1 if isinstance(value, str) else size // _PER_ITEM * depth
            for arg in args:
                self._check_repeated(" " * arg if isinstance(arg, int) else arg, lines)

    def _check_percent(self, text: str, values: Any) -> None:
        for found in _PERCENT.finditer(text):
            if any(width == "*" or len(width) > 6 for width in found.groups(default="")):
                raise LimitPassed("The chat template formats a text to too large a width, or one that it computes.")
        self._check_repeated(values, text.count("%"))

    def _check_joining(self, between: str, values: Any) -> None:
        if isinstance(values, Sequence):
            self._check_repeated(between, len(values))
            self._check_repeated(values, 1)

    def _check_repeated(self, value: Any, times: int) -> None:
        size = len(value) if isinstance(value, str) else self._size(value)
        if size * times > _MAX_VALUE:
            raise LimitPassed("The chat template repeats a value too often.")

    def _check_numbers(self, name: str, args: Sequence[Any], most: int) -> None:
        if any(isinstance(arg, int) and abs(arg) > most for arg in args):
            raise LimitPassed(f"The chat template applies {name} with too large a number.")

    def _size(self, value: Any) -> int:
        return self._measured(value)[0]

    def _measured(self, value: Any) -> tuple[int, int]:
        """Bytes, about, and depth; linear in what was not looked at before. 1 and 0 for what holds nothing."""
        if isinstance(value, (str, bytes)):
            return _PER_TEXT + len(value), 0
        if not isinstance(value, _CONTAINERS):
            return 1, 0
        if len(value) > _MAX_ITEMS:
            return _MAX_VALUE + 1, 1
        if id(value) not in self._known:
            items = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
            found = [self._measured(item) for item in items]
            size = _PER_ITEM + sum(size + _PER_ITEM for size, _ in found)
            self._known[id(value)] = value, size, 1 + max((depth for _, depth in found), default=0)
        return self._known[id(value)][1:]
