"""Tiny random models of many architectures: the vocabulary of the tiny tokenizer, float32, large enough weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "initializer_range": 0.2,
}

# GPT-2 and its kin name their sizes otherwise.
GPT_SIZES: dict[str, Any] = {
    **{
        name: SIZES[name]
        for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range")
    },
    "n_positions": 128,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
}


def architecture(kind: str, sizes: dict[str, Any] = SIZES, attention: str | None = None, **settings: Any) -> Any:
    """A random model of transformers' model type `kind`."""
    config = AutoConfig.for_model(kind, **{**sizes, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    return model.eval().requires_grad_(False)
