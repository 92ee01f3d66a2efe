"""A transformers causal LM, called the same way whatever its version or architecture names the arguments."""

from __future__ import annotations

import inspect
from typing import Any

import torch


class CausalModel:
    """Ids in, float32 logits out, with a cache of the caller's or without one."""

    def __init__(self, model: Any) -> None:
        self.model = model
        embeddings = model.get_input_embeddings().weight
        self.device: torch.device = embeddings.device
        self.dtype: torch.dtype = model.dtype
        self.vocabulary = int(embeddings.shape[0])
        accepted = inspect.signature(model.forward).parameters
        # transformers renamed the argument in 5.24; before that, and in models outside it, it has the old name.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._keeps_logits = "logits_to_keep" in accepted

    @property
    def attention(self) -> str:
        """The name of the attention that transformers chose: sdpa, eager, ..."""
        return str(getattr(self.model.config, "_attn_implementation", None))

    def __call__(self, ids: torch.Tensor, keep: torch.Tensor, cache: Any, **arguments: Any) -> torch.Tensor:
        """Logits [batch, len(keep), vocabulary] at the positions `keep` (int64 [k]) of `ids` (int64 [batch, new]).

        `cache` None reads the ids without one.
        """
        arguments = {"input_ids": ids, "use_cache": cache is not None, **arguments}
        if cache is not None:
            arguments[self._cache_name] = cache
        if self._keeps_logits:
            return self.model(**arguments, logits_to_keep=keep).logits.float()  # type: ignore[no-any-return]
        return self.model(**arguments).logits[:, keep].float()  # type: ignore[no-any-return]

    def mask(self, visible: torch.Tensor) -> torch.Tensor:
        """What may be attended to, bool [batch, 1, new, columns], as the model's attention takes it."""
        if self.attention != "eager":
            return visible
        # Eager attention adds the mask to its scores.
        hidden = torch.finfo(self.dtype).min
        return torch.zeros(visible.shape, dtype=self.dtype, device=visible.device).masked_fill_(~visible, hidden)
