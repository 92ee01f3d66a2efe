"""How many ids a model can hold, prompt and answer together."""

from __future__ import annotations

from typing import Any

# Names under which model configurations keep their number of positions, the common one first.
_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len", "n_ctx")

# Tokenizers that do not know the limit say something like 1e30.
_UNKNOWN = 10**9


def context_length(config: Any, tokenizer: Any) -> int | None:
    """From the model's configuration (its text part for models that see), else the tokenizer, else None."""
    text_config = getattr(config, "text_config", None) or config
    for name in _NAMES:
        value = getattr(text_config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    limit = getattr(tokenizer, "model_max_length", None)
    return int(limit) if limit is not None and 0 < limit < _UNKNOWN else None
