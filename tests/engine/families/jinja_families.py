"""Families over chat templates, for tests."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken

from chatlocal.engine import families
from tests.tiny import tiny_tokenizer

Messages = list[dict[str, Any]]


def tokenizer_with(template: str, *markup: str) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in markup])
    tokenizer.chat_template = template
    return tokenizer


def family_of(tokenizer: Any) -> families.Family:
    return families.resolve(tokenizer, None).family


def family(template: str, *markup: str) -> families.Family:
    return family_of(tokenizer_with(template, *markup))


def says(*pairs: tuple[str, Any]) -> Messages:
    return [{"role": role, "content": content} for role, content in pairs]


def official_ids(tokenizer: Any, messages: Messages, **options: Any) -> list[int]:
    return list(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True, **options)[
            "input_ids"
        ]
    )
