"""The tokenizer of the first Qwen models, from `qwen.tiktoken`.

Pattern, normal form and control tokens are those of tokenization_qwen.py in Qwen/Qwen-7B-Chat: `<|endoftext|>` 151643,
`<|im_start|>` 151644, `<|im_end|>` 151645, `<|extra_0|>` 151646 to `<|extra_204|>` 151850.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chatlocal.engine.tokenizers.tiktoken_file import fast_tokenizer, read_ranks

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_OF_TEXT = "<|endoftext|>"
SPECIAL = (END_OF_TEXT, "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))


def qwen_tokenizer(vocab_file: Path, **options: Any) -> Any:
    """The tokenizer as one of transformers. `options` are PreTrainedTokenizerFast's. ModelLoadError."""
    ends = {"eos_token": END_OF_TEXT, "pad_token": END_OF_TEXT}
    return fast_tokenizer(read_ranks(vocab_file), PATTERN, SPECIAL, nfc=True, **{**ends, **options})
