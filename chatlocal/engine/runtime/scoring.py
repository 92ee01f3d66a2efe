"""Log-probabilities of ids that are known beforehand."""

from __future__ import annotations

from typing import Any

import torch

from chatlocal.engine.runtime.causal_model import CausalModel

# Logits are [positions, vocabulary] in float32: of so many positions at once they take 25 to 130 MB.
MOST_AT_ONCE = 128


class Scorer:
    """Reads texts by plain forward passes without a cache, which is right for every causal model."""

    def __init__(self, model: Any) -> None:
        self._model = CausalModel(model)

    def logprobs(self, prompt_ids: list[int], given: tuple[int, ...]) -> tuple[list[float], int]:
        """The natural-log probability of each given id behind the prompt and those before it, and how many forward
        passes that took: one for each 128 given ids."""
        ids = torch.tensor([[*prompt_ids, *given]], device=self._model.device)
        found: list[float] = []
        passes = 0
        for first in range(len(prompt_ids), ids.shape[1], MOST_AT_ONCE):
            last = min(first + MOST_AT_ONCE, ids.shape[1])
            # What stands at a position is foretold by the logits at the one before.
            keep = torch.arange(first - 1, last - 1, device=self._model.device)
            [logits] = self._model(ids[:, : last - 1], keep, None)
            found += score_rows(logits, given[first - len(prompt_ids) : last - len(prompt_ids)])
            passes += 1
        return found, passes


def score_rows(logits: torch.Tensor, ids: tuple[int, ...]) -> list[float]:
    """The natural-log probability of each id in its row of `logits`, float32 [len(ids), vocabulary]."""
    chosen = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None])[:, 0]
    return (chosen - logits.logsumexp(-1)).tolist()
