"""Where the length of a model's context is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import Gemma3Config, GPT2Config, LlamaConfig, MambaConfig

from chatlocal.engine.context_length import context_length

UNKNOWN = SimpleNamespace(model_max_length=int(1e30))


@pytest.mark.parametrize(
    ("config", "tokenizer", "expected"),
    [
        (LlamaConfig(max_position_embeddings=64), UNKNOWN, 64),
        (LlamaConfig(max_position_embeddings=64), SimpleNamespace(model_max_length=16), 64),
        (GPT2Config(n_positions=48), UNKNOWN, 48),
        (Gemma3Config(text_config={"max_position_embeddings": 96}), UNKNOWN, 96),
        (MambaConfig(), UNKNOWN, None),
        (MambaConfig(), SimpleNamespace(model_max_length=1e30), None),
        (MambaConfig(), SimpleNamespace(model_max_length=4096), 4096),
        (None, SimpleNamespace(model_max_length=512), 512),
        (None, SimpleNamespace(), None),
    ],
)
def test_the_configuration_goes_before_the_tokenizer(config: Any, tokenizer: Any, expected: int | None) -> None:
    assert context_length(config, tokenizer) == expected
