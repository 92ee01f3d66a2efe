"""Text to ids with ordinary tokens only: no control token, no space put in front, whatever the text says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer


def plain_encoder(tokenizer: Any, texts: Sequence[bytes]) -> Callable[[str], list[int]]:
    """An encoder into ids whose `texts` are not b"". It keeps no reference to the tokenizer.

    The ids are the tokenizer's own wherever those spell the text exactly, and else the longest matches. Where the
    vocabulary cannot spell the text, the ids stop before what it lacks.
    """
    # A copy: the tokenizer's own settings (truncation, padding) change with every call that others make.
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    plain = _without_additions(backend) if isinstance(backend, Tokenizer) else None
    by_text = {text: id for id, text in enumerate(texts) if text}
    longest = max(map(len, by_text), default=0)

    def encode(text: str) -> list[int]:
        wanted = text.encode()
        if plain is not None:
            ids: list[int] = plain.encode(text, add_special_tokens=False).ids
            if all(id < len(texts) and texts[id] for id in ids) and b"".join(texts[id] for id in ids) == wanted:
                return ids
        return _longest_matches(wanted, by_text, longest)

    return encode


def _longest_matches(text: bytes, by_text: dict[bytes, int], longest: int) -> list[int]:
    ids: list[int] = []
    place = 0
    while place < len(text):
        end = min(place + longest, len(text))
        while end > place and text[place:end] not in by_text:
            end -= 1
        if end == place:
            break
        ids.append(by_text[text[place:end]])
        place = end
    return ids


def _without_additions(backend: Tokenizer) -> Tokenizer:
    """The same tokenizer without added tokens and without a space put before the text."""
    settings = json.loads(backend.to_str())
    settings |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    settings["normalizer"] = _unprefixed(settings["normalizer"], "normalizers")
    settings["pre_tokenizer"] = _unprefixed(settings["pre_tokenizer"], "pretokenizers")
    return Tokenizer.from_str(json.dumps(settings))


def _unprefixed(step: dict[str, Any] | None, children: str) -> dict[str, Any] | None:
    if step is None or step["type"] == "Prepend":
        return None
    if step["type"] == "Sequence":
        kept = (_unprefixed(child, children) for child in step[children])
        return step | {children: [child for child in kept if child is not None]}
    if step["type"] == "Metaspace":
        return step | {"prepend_scheme": "never"}
    return step | {"add_prefix_space": False} if "add_prefix_space" in step else step
