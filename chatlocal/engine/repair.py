"""Asking a model again for a structured answer that was refused: what is judged, what the model is told, what is kept.

Front ends ask and translate. An answer that is refused goes back to the model with the reason; one that was cut at
max_tokens does not, since the next one would be cut too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from chatlocal.engine.errors import OutputInvalid, Try

Value = TypeVar("Value")


class Tries(Generic[Value]):
    """The answers to one question. `check` reads an answer and raises OutputInvalid for one that does not fit.

    `made` are the tries so far; the last one is the answer that counts. `retries` may follow the first.
    """

    def __init__(self, check: Callable[[str], Value], retries: int = 0, made: Iterable[Try] = ()) -> None:
        self.made = tuple(made)
        self._check = check
        self._retries = retries
        self._cut = False
        self._read: Value | OutputInvalid | None = None

    def take(self, answer: str, *, cut: bool = False) -> None:
        """Judge one more answer; `cut` says whether it ended at max_tokens."""
        self._cut = cut
        try:
            self._read = self._check(answer)
            error = None
        except OutputInvalid as problem:
            self._read = problem
            error = f"The answer was cut off at its token limit (raise max_tokens): {problem}" if cut else str(problem)
        self.made = (*self.made, Try(answer, error))

    @property
    def again(self) -> bool:
        """Whether the last answer is to go back to the model, with the `complaint`."""
        return self.made[-1].error is not None and not self._cut and len(self.made) <= self._retries

    def complaint(self, *, call: bool = False) -> str:
        """What to tell the model of its last answer; `call`: it was the arguments of a call."""
        error = self.made[-1].error
        if call:
            return f"The arguments are not valid. {error}\nMake the call again with valid ones."
        return f"That answer is not valid. {error}\nAnswer again with a valid one."

    def value(self) -> Value:
        """The last answer as `check` read it. OutputInvalid with all tries where it was refused."""
        read: Any = self._read
        if isinstance(read, OutputInvalid):
            count = f"{len(self.made)} {'try' if len(self.made) == 1 else 'tries'}"
            raise OutputInvalid(f"{self.made[-1].error} (after {count})", read.raw, self.made) from read
        value: Value = read
        return value


def as_json(tries: Iterable[Try]) -> list[dict[str, Any]]:
    """Tries as plain values, each with its `answer` and `error`, for the results of frameworks."""
    return [asdict(one) for one in tries]
