"""How sure the model was of each value of a structured answer.

Every id that was chosen under a grammar has a probability among the ids that the grammar allowed there. The confidence
in a value is the product of these over the ids that its text touches: the choices that made the value what it is.
Forced text has no choices and counts as 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate

from chatlocal.engine.json_spans import spans


class Choices:
    """The bytes of each id of an answer, and the log-probability (nats) of its choice."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._logprobs: list[float] = []

    def add(self, text: bytes, logprob: float) -> None:
        self._texts.append(text)
        self._logprobs.append(logprob)

    def rewind(self, count: int) -> None:
        """The last `count` ids are written anew."""
        del self._texts[len(self._texts) - count :], self._logprobs[len(self._logprobs) - count :]

    def of_json(self, text: str) -> dict[str, float] | None:
        """The confidence in each value of a JSON text, by its JSON pointer ("" is the whole).

        None where the ids do not spell the text, or it is not whole.
        """
        start = b"".join(self._texts).rfind(text.encode())
        if start < 0:
            return None
        try:
            found = spans(text)
        except ValueError:
            return None
        ends = list(accumulate(map(len, self._texts)))
        sums = [0.0, *accumulate(self._logprobs)]
        place = [start, *(start + size for size in accumulate(len(character.encode()) for character in text))]
        confidence = {}
        for pointer, first, last, number in found:
            # The ids whose bytes reach over the value; of a number also the one behind it, which was chosen instead of
            # a further digit.
            begins = bisect_right(ends, place[first])
            stops = bisect_left(ends, place[last] + number) + 1
            confidence[pointer] = math.exp(sums[min(stops, len(ends))] - sums[begins])
        return confidence
