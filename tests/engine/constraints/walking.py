"""Random text under a constraint: at each step any allowed token, the end with preference once enough was written."""

from __future__ import annotations

import random
from typing import Any

import torch

from chatlocal.engine.constraints import Constraint
from chatlocal.engine.constraints.vocabulary import token_bytes

_CLOSING = (b'"', b"}", b"]", b'"}', b'"]', b",", b'":', b")", b"@", b".", b"!")


def walk(constraint: Constraint, tokenizer: Any, seed: int, steps: int = 40, limit: int = 3000) -> str:
    """The text of one walk. After `steps` tokens it turns to the tokens that close what is open, to come to an end."""
    rng = random.Random(seed)
    tokens = token_bytes(tokenizer)
    state = constraint.start()
    text = b""
    for step in range(limit):
        allowed = torch.nonzero(state.mask()).flatten().tolist()
        ends = [id for id in allowed if id in constraint.end_ids]
        if ends and (step >= steps or len(allowed) == len(ends) or rng.random() < 0.1):
            return text.decode()
        others = [id for id in allowed if id not in constraint.end_ids]
        closing = [id for id in others if tokens[id] in _CLOSING]
        id = rng.choice(closing if closing and step >= steps and rng.random() < 0.8 else others)
        state.advance(id)
        text += tokens[id]
    raise AssertionError(f"no end after {limit} tokens: {text[-200:]!r}")
