"""Which strings are control tokens: what a user types must never become one of them.

They are the added tokens that the tokenizer marks special, and the other added tokens that its chat template (or the
family in use) writes as markup, such as `<tool_call>` and `<think>`. Other added tokens are ordinary text: Gemma has
`<table>` and runs of newlines among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from chatlocal.engine.families.sandbox import literal_text


def control_tokens(tokenizer: Any, extra: Iterable[str] = ()) -> dict[str, int]:
    """The control tokens with their ids; `extra` are those of the family in use, if the tokenizer has them."""
    wanted = set(extra) | set(getattr(tokenizer, "chat_control_tokens", None) or ())
    literals = [literal_text(template) for template in chat_templates(tokenizer).values()]
    return {
        token.content: id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.special or token.content in wanted or _is_markup(token.content, literals)
    }


def markup_of(tokenizer: Any, templates: Iterable[str]) -> frozenset[str]:
    """The added tokens that these chat templates write themselves."""
    contents = tuple(token.content for token in tokenizer.added_tokens_decoder.values())
    return _markup(contents, tuple(templates))


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


@lru_cache(maxsize=16)
def _markup(contents: tuple[str, ...], templates: tuple[str, ...]) -> frozenset[str]:
    literals = [literal_text(template) for template in templates]
    return frozenset(content for content in contents if _is_markup(content, literals))


def _is_markup(content: str, literals: list[str]) -> bool:
    return not content.isspace() and any(content in literal for literal in literals)
