"""Grammars for constrained decoding: what a text may be, turned into a mask over token ids at every step.

`json_schema`, `regex`, `choice` and `grammar` make a Spec; `compile` turns it into a Constraint for one tokenizer.
A grammar is necessary and not sufficient: check the finished text with `validation.check`.
"""

from __future__ import annotations

from chatlocal.engine.constraints import validation
from chatlocal.engine.constraints.compilation import compile
from chatlocal.engine.constraints.constraint import Constraint, ConstraintState
from chatlocal.engine.constraints.limits import Limits
from chatlocal.engine.constraints.spec import (
    Opening,
    Spec,
    after,
    choice,
    either,
    free_text,
    grammar,
    json_schema,
    marked,
    regex,
    thinking,
)
from chatlocal.engine.constraints.token_budget import TokenBudget

__all__ = [
    "Constraint",
    "ConstraintState",
    "Limits",
    "Opening",
    "Spec",
    "TokenBudget",
    "after",
    "choice",
    "compile",
    "either",
    "free_text",
    "grammar",
    "json_schema",
    "marked",
    "regex",
    "thinking",
    "validation",
]
