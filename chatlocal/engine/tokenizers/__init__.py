"""Tokenizers that do not come as fast tokenizers: the first Qwen, ChatGLM, GLM-4 and bare sentencepiece files.

They are read from the model's own vocabulary file. Where it can be said exactly in the `tokenizers` library the result
is a tokenizer of transformers; ChatGLM's go through sentencepiece.
"""

from __future__ import annotations

from chatlocal.engine.tokenizers.chatglm import ChatGLMTokenizer
from chatlocal.engine.tokenizers.chatglm2 import ChatGLM2Tokenizer, ChatGLM3Tokenizer
from chatlocal.engine.tokenizers.folder import native_tokenizer

__all__ = ["ChatGLM2Tokenizer", "ChatGLM3Tokenizer", "ChatGLMTokenizer", "native_tokenizer"]
