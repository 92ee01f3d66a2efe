"""Keeping the end of a constrained text within reach of the tokens that are left."""

from __future__ import annotations

from chatlocal.engine.constraints.constraint import Constraint, ConstraintState
from chatlocal.engine.constraints.forced_text import Forced, advance_forced, take_back
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

    def advance_forced(self, replaceable: int | None = None) -> Forced | None:
        """`forced_text.advance_forced` on the state; None, and no change, where what it writes has no room too.

        What it adds is taken from the tokens that are left.
        """
        forced = advance_forced(self.state, replaceable)
        if forced is None or not forced.ids:
            return forced
        left = self._left - forced.grown
        way = None if self._way is None else self._behind_forced(forced, left)
        if left < 0 or (self._way is not None and (way is None or len(way) > left)):
            take_back(self.state, forced)
            return None
        self._left, self._way = left, way
        return forced

    def _behind_forced(self, forced: Forced, left: int) -> list[int] | None:
        """A way to the end from where the forced text has led: mostly the rest of the known one."""
        texts = self.state.tokens.texts
        added = sum(len(texts[id]) for id in forced.ids) - sum(len(texts[id]) for id in forced.replaced)
        place = 0
        while added > 0 and self._way and place < len(self._way):
            added -= len(texts[self._way[place]])
            place += 1
        if self._way and not added:
            return self._way[place:]
        return self.state.ending(left)

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
