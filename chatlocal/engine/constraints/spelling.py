"""Whether a vocabulary can write the texts that a schema demands.

Some vocabularies lack single bytes (SmolLM2's lacks 21). A free string then does without them; a value or key that
needs one could never be finished, so it is refused before any generation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from chatlocal.engine.constraints.protocol import Tokens, per_tokens
from chatlocal.engine.constraints.references import escape
from chatlocal.engine.errors import UnsupportedSchema


def check_spelling(schema: dict[str, Any], tokens: Tokens) -> None:
    """UnsupportedSchema for a required key or an enum's value that the tokens cannot spell. `schema` is normalised."""
    if len(_single_bytes(tokens)) == 256:
        return
    for keyword, path, value in _demanded(schema, ""):
        text = json.dumps(value, ensure_ascii=False)
        if not can_spell(text, tokens):
            raise UnsupportedSchema(keyword, path, f"the tokenizer has no tokens to write {text[:80]}")


def can_spell(text: str, tokens: Tokens) -> bool:
    """Whether the tokens can write a text."""
    wanted = text.encode()
    if _single_bytes(tokens).issuperset(wanted[place : place + 1] for place in range(len(wanted))):
        return True
    return b"".join(tokens.texts[id] for id in tokens.encode(text)) == wanted


@per_tokens
def _single_bytes(tokens: Tokens) -> frozenset[bytes]:
    return frozenset(text for text in tokens.texts if len(text) == 1)


def _demanded(node: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    if isinstance(node, list):
        for place, child in enumerate(node):
            yield from _demanded(child, f"{path}/{place}")
    if not isinstance(node, dict):
        return
    for keyword in ("enum", "required"):
        if isinstance(node.get(keyword), list):
            yield from ((keyword, path, value) for value in node[keyword])
    for key, child in node.items():
        if key in ("properties", "patternProperties", "$defs"):
            for name, schema in child.items():
                yield from _demanded(schema, f"{path}/{key}/{escape(name)}")
        elif key not in ("enum", "required"):
            yield from _demanded(child, f"{path}/{key}")
