"""The tokenizer of GLM-4 (ChatGLM4Tokenizer), whose `tokenizer.model` has tiktoken's form.

Pattern and control tokens are those of tokenization_chatglm.py and tokenizer_config.json in THUDM/glm-4-9b-chat:
`<|endoftext|>` 151329, `[gMASK]` 151331, `<sop>` 151333, `<|user|>` 151336, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.tokenizers.tiktoken_file import fast_tokenizer, read_ranks

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_OF_TEXT = "<|endoftext|>"
PREFIX = ("[gMASK]", "<sop>")
SPECIAL = (
    *(END_OF_TEXT, "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"),
)


def glm4_tokenizer(vocab_file: Path, added: Mapping[int, str] | None = None, **options: Any) -> Any:
    """The tokenizer as one of transformers; `[gMASK] <sop>` go before a text with add_special_tokens=True.

    `added` are the control tokens by id where tokenizer_config.json names them; `options` are those of
    PreTrainedTokenizerFast. ModelLoadError for a broken file, and where the ids do not follow the ranks.
    """
    ranks = read_ranks(vocab_file)
    special = tuple(added[id] for id in sorted(added)) if added else SPECIAL
    if added and sorted(added) != list(range(len(ranks), len(ranks) + len(added))):
        raise ModelLoadError(
            f"{vocab_file} has {len(ranks)} tokens, which the added tokens of tokenizer_config.json"
            f" ({min(added)} to {max(added)}) do not follow: the two files belong to different models."
        )
    ends = {"eos_token": END_OF_TEXT, "pad_token": END_OF_TEXT}
    return fast_tokenizer(ranks, PATTERN, special, prefix=PREFIX, **{**ends, **options})
