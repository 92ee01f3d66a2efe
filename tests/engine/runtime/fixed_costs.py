"""Costs of forwards that do not depend on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chatlocal.engine.runtime import drafting


class FixedCosts:
    """`of` gives the seconds of a forward by the number of its ids."""

    def __init__(self, of: Callable[[int], float]) -> None:
        self._of = of

    def watch(self, runner: Any) -> None:
        """Nothing is measured."""

    def done(self) -> None:
        """Nothing is measured."""

    def seconds(self, ids: int) -> float:
        return self._of(ids)


def free(ids: int) -> float:
    """All ids of a forward cost what one costs, so every draft pays."""
    return 1.0


def by_id(ids: int) -> float:
    """Twice the ids cost twice as much, so that no draft pays."""
    return float(ids)


def fix_costs(monkeypatch: pytest.MonkeyPatch, of: Callable[[int], float]) -> None:
    """Backends that are made from now on draft by these costs."""
    monkeypatch.setattr(drafting, "StepCosts", lambda: FixedCosts(of))
