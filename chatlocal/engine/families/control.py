"""Which strings are control tokens: what a user types must never become one of them.

They are the added tokens that the tokenizer marks special, and the other added tokens that its chat template (or the
family in use) writes as markup, such as `<tool_call>` and `<think>`. Other added tokens are ordinary text: Gemma has
`<table>` and runs of newlines among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from chatlocal.engine.families.sandbox import literal_text

_SPELLED = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)


def control_tokens(tokenizer: Any, extra: Iterable[str] = ()) -> dict[str, int]:
    """The control tokens with their ids; `extra` are those of the family in use, if the tokenizer has them."""
    wanted = set(extra) | set(getattr(tokenizer, "chat_control_tokens", None) or ())
    literals = [literal_text(template) for template in chat_templates(tokenizer).values()]
    return {
        token.content: id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.special or token.content in wanted or _is_markup(token.content, literals) or _looks_it(token.content)
    }


def markup_of(tokenizer: Any, texts: Iterable[str]) -> frozenset[str]:
    """The added tokens in texts that chat templates write themselves."""
    contents = (token.content for token in tokenizer.added_tokens_decoder.values())
    texts = tuple(texts)
    return frozenset(content for content in contents if _is_markup(content, texts))


def chat_templates(tokenizer: Any) -> dict[str, str]:
    """The tokenizer's chat templates by name, one without a name as "default"; empty when there is none."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        return {}
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, Mapping):
        return dict(template)
    return {entry["name"]: entry["template"] for entry in template}


def _looks_it(content: str) -> bool:
    """Whether an added token is spelled as only control tokens are, such as Qwen's <|fim_prefix|>."""
    return _SPELLED.fullmatch(content) is not None


def _is_markup(content: str, literals: Iterable[str]) -> bool:
    return not content.isspace() and any(content in literal for literal in literals)
