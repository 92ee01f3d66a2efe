"""Log-probabilities of ids that are known beforehand."""

from __future__ import annotations

from typing import Any

import torch

from chatlocal.engine.runtime.causal_model import CausalModel

# Logits are [positions, vocabulary] in float32: of so many positions at once they take 25 to 130 MB.
_POSITIONS = 128


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
        for first in range(len(prompt_ids), ids.shape[1], _POSITIONS):
            last = min(first + _POSITIONS, ids.shape[1])
            # What stands at a position is foretold by the logits at the one before.
            keep = torch.arange(first - 1, last - 1, device=self._model.device)
            [logits] = self._model(ids[:, : last - 1], keep, None)
            chosen = logits.gather(1, ids[0, first:last, None])[:, 0]
            found += (chosen - logits.logsumexp(-1)).tolist()
            passes += 1
        return found, passes
