"""Keeping the end of a constrained text within reach of the tokens that are left."""

from __future__ import annotations

from chatlocal.engine.constraints.constraint import Constraint, ConstraintState
from chatlocal.engine.errors import BudgetTooSmall, UnsupportedInput


class TokenBudget:
    """The tokens that one answer may have, and a way to its end that fits into them. `state` is the answer's.

    Where no way to an end is found (a pattern in a string that one has to know the text for), nothing is watched, and
    the answer may be cut. BudgetTooSmall when the way that was found does not fit.
    """

    def __init__(self, constraint: Constraint, tokens: int) -> None:
        self.state = constraint.start()
        self._left = tokens
        self._way = constraint.shortest
        if self._way is not None and len(self._way) > tokens:
            raise BudgetTooSmall(
                f"The shortest answer found for this constraint has {len(self._way)} tokens and there is room for"
                f" {tokens}: raise max_tokens, or shorten the prompt where the context is full."
            )

    def within_reach(self, id: int) -> int:
        """The id itself where the end can still be reached behind it, else the next one on the way to the end.

        Call it with each id that was chosen, before the state takes what it gives.
        """
        self._left -= 1
        if self._way is None or id in self.state.end_ids:
            return id
        if self._way[:1] == [id]:
            self._way = self._way[1:]
            return id
        way = self._behind(id)
        if way is not None:
            self._way = way
            return id
        if not self._way:  # it may end here, and not behind this id any more
            return min(self.state.end_ids)
        id, *self._way = self._way
        return id

    def _behind(self, id: int) -> list[int] | None:
        """A way to the end behind an id, within the tokens that are left."""
        there = self.state.copy()
        there.advance(id)
        if there.may_end:
            return []
        if self._way and len(self._way) <= self._left and _leads(there.copy(), self._way):
            return self._way
        return there.ending(self._left)


def _leads(state: ConstraintState, way: list[int]) -> bool:
    """Whether a way that led to the end still does."""
    try:
        for id in way:
            state.advance(id)
    except UnsupportedInput:
        return False
    return state.may_end
