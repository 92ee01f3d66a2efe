"""Tiny random models and a small byte-level BPE tokenizer, made on the fly: real classes, real files, milliseconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
SPECIALS = (END_OF_TEXT, IM_START, IM_END)  # ids 0, 1, 2

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_CORPUS = (
    "Harry was a chubby brown beagle who loved chicken. The dog is called Harry and his coat is brown.",
    '{"name": "Harry", "color": "brown", "fav_food": "chicken", "age": 3, "alive": true, "owner": null}',
    "Question: what is the answer? Thought: look it up. Action: search. Observation: 42. Final answer: 42.",
    "user system assistant tool function content role name arguments",
    "你好，世界。今天天气很好，我们去公园散步吧。小狗的名字叫哈利，它的颜色是棕色。",
    "I like 🍕 and 🦥, family 👨‍👩‍👧, flags 🇳🇱 and café naïve Zürich.",
)


@cache
def _trained() -> str:
    """The tokenizer as JSON text: training is deterministic, so one run serves the whole process."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # all 256 bytes, so that every text can be encoded
    )
    tokenizer.train_from_iterator(_CORPUS * 2, trainer)
    return str(tokenizer.to_str())


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A fresh byte-level BPE tokenizer of at most 512 entries with a ChatML template; it ends at <|im_end|>."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained()),
        bos_token=IM_START,
        eos_token=IM_END,
        pad_token=IM_END,
        unk_token=END_OF_TEXT,
        additional_special_tokens=list(SPECIALS),
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def tiny_config(**overrides: Any) -> LlamaConfig:
    """Two layers, hidden size 32, grouped-query attention, 512 positions, the tiny tokenizer's vocabulary."""
    settings: dict[str, Any] = {
        "vocab_size": len(tiny_tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "tie_word_embeddings": True,
        # Ten times the usual 0.02: with that, tied embeddings make a random model repeat its last token for ever.
        "initializer_range": 0.2,
    }
    return LlamaConfig(**{**settings, **overrides})


def tiny_model(seed: int = 0, **config_overrides: Any) -> LlamaForCausalLM:
    """A random Llama in float32, in eval mode; the same seed gives the same weights, torch's own seed is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(tiny_config(**config_overrides))
    return model.eval().requires_grad_(False)


def save_tiny(folder: str | Path, seed: int = 0, *, tokenizer: bool = True, **config_overrides: Any) -> Path:
    """Write model (and tokenizer) as a checkpoint folder and return it."""
    folder = Path(folder)
    tiny_model(seed, **config_overrides).save_pretrained(folder)
    if tokenizer:
        tiny_tokenizer().save_pretrained(folder)
    return folder
