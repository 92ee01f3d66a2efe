"""Which family a model belongs to, by what its configuration, its tokenizer and its name say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Model:
    """What is known of a model. `type` is the configuration's model_type, `name` its folder or hub id in lower case.

    `vocab_size` is that of the configuration.
    """

    type: str
    name: str
    vocab_size: int | None
    tokenizer: Any

    @classmethod
    def of(cls, tokenizer: Any, config: Any) -> Model:
        """The facts of a model; `config` may be None."""
        names = (getattr(config, "_name_or_path", ""), getattr(tokenizer, "name_or_path", ""))
        return cls(
            type=str(getattr(config, "model_type", None) or ""),
            name=" ".join(str(name) for name in names if name).lower(),
            vocab_size=getattr(config, "vocab_size", None),
            tokenizer=tokenizer,
        )

    def has_token(self, text: str) -> bool:
        """Whether the tokenizer has this text as one token."""
        return text in self._tokens

    @cached_property
    def _tokens(self) -> frozenset[str]:
        read = getattr(self.tokenizer, "get_vocab", None)
        return frozenset(read() if read is not None else ())


@dataclass(frozen=True)
class MadeFor:
    """Models that a family is for: of these types, and with something in their name that the pattern finds.

    `vocab_sizes`, and a `token` that the tokenizer has, narrow it further. `dedicated`: the family goes before the
    tokenizer's own chat template, which is wrong or absent for these models; `because` says why, for a person to
    read.
    """

    types: tuple[str, ...]
    name: str = ""
    vocab_sizes: tuple[int, ...] = ()
    token: str = ""
    dedicated: bool = False
    because: str = ""

    def fits(self, model: Model) -> int | None:
        """How closely a model fits, None when it does not: the more of its name is known, the closer."""
        if model.type not in self.types or (self.vocab_sizes and model.vocab_size not in self.vocab_sizes):
            return None
        if self.token and not model.has_token(self.token):
            return None
        found = max((len(match[0]) for match in re.finditer(self.name, model.name)), default=None)
        return None if found is None else 3 * found + bool(self.vocab_sizes) + bool(self.token)


def closest(made_for: Iterable[tuple[str, MadeFor]], model: Model) -> tuple[str, MadeFor] | None:
    """Of (family name, models) pairs the one that fits a model best, None when none does."""
    fitting = [(fit, pair) for pair in made_for if (fit := pair[1].fits(model)) is not None]
    return max(fitting, key=lambda item: item[0])[1] if fitting else None
