"""How long the strings and lists of an answer may get where a schema does not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chatlocal.engine.errors import UnsupportedInput


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for what a model writes; None is no limit. They steer what is generated and refuse no text.

    `characters` of a string and `items` of a list, where the schema demands no more; a maximum that it declares
    anywhere counts instead if it is larger. `repeats` ends what goes round in circles: a list whose last items are so
    many equal texts, objects or lists, and a string that ends in so many equal pieces, of 60 characters and more
    together. With `characters` a number ends at 40 of them.
    """

    characters: int | None = 2000
    items: int | None = 100
    repeats: int | None = 4

    def __post_init__(self) -> None:
        for name in ("characters", "items", "repeats"):
            value = getattr(self, name)
            least = 2 if name == "repeats" else 1
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise UnsupportedInput(f"The limit of {name} is a whole number from {least} on or None, got {value!r}.")

    def beside(self, schema: Any) -> Limits:
        """These limits, raised to the largest maximum and minimum that a schema declares."""
        return Limits(
            _raised(self.characters, schema, ("maxLength", "minLength")),
            _raised(self.items, schema, ("maxItems", "minItems")),
            self.repeats,
        )


def _raised(limit: int | None, schema: Any, keywords: tuple[str, ...]) -> int | None:
    return None if limit is None else max([limit, *_declared(schema, keywords)])


def _declared(schema: Any, keywords: tuple[str, ...]) -> list[int]:
    if isinstance(schema, list):
        return [number for child in schema for number in _declared(child, keywords)]
    if not isinstance(schema, dict):
        return []
    found = [value for key, value in schema.items() if key in keywords and isinstance(value, int)]
    return found + [number for child in schema.values() for number in _declared(child, keywords)]
