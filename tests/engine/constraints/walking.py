"""Random text under a constraint: at each step any allowed token, the end with preference once enough was written."""

from __future__ import annotations

import random
from typing import Any

import torch

from chatlocal.engine.constraints import Constraint, ConstraintState
from chatlocal.engine.constraints.vocabulary import read_vocabulary

_CLOSING = {b'"', b"}", b"]", b'"}', b'"]', b",", b'":', b")", b"@", b".", b"!", b"\n", b"<", b"/", b">"}


def spelled(tokenizer: Any) -> list[bytes]:
    """The bytes of each id, a control token's by its name."""
    vocabulary = read_vocabulary(tokenizer)
    texts = list(vocabulary.tokens)
    for name, id in vocabulary.names.items():
        texts[id] = name.encode()
    return texts


def walk(constraint: Constraint, tokenizer: Any, seed: int, steps: int = 40, limit: int = 3000) -> str:
    """The text of one walk. After `steps` tokens it turns to the tokens that close what is open, to come to an end."""
    rng = random.Random(seed)
    tokens = spelled(tokenizer)
    ends = sorted(constraint.end_ids)
    closing_ids = torch.tensor([id for id, text in enumerate(tokens) if text in _CLOSING])
    state = constraint.start()
    text = b""
    for step in range(limit):
        mask = state.mask()
        may_end = bool(mask[ends].any())
        mask[ends] = False
        allowed = mask.nonzero().flatten()
        if may_end and (step >= steps or len(allowed) == 0 or rng.random() < 0.1):
            return text.decode()
        closing = closing_ids[mask[closing_ids]]
        choices = closing if len(closing) and step >= steps and rng.random() < 0.8 else allowed
        id = int(choices[rng.randrange(len(choices))])
        state.advance(id)
        text += tokens[id]
    raise AssertionError(f"no end after {limit} tokens: {text[-200:]!r}")


def written(constraint: Constraint, tokenizer: Any, text: str) -> ConstraintState:
    """The state behind a text, each time with the longest token of it that the mask allows."""
    texts = spelled(tokenizer)
    state = constraint.start()
    left = text.encode()
    while left:
        fitting = [id for id in state.mask().nonzero().flatten().tolist() if texts[id] and left.startswith(texts[id])]
        if not fitting:
            raise AssertionError(f"{left[:80]!r} cannot follow")
        id = max(fitting, key=lambda id: len(texts[id]))
        state.advance(id)
        left = left[len(texts[id]) :]
    return state
