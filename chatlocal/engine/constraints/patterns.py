"""Whether the grammar backend can read a regular expression of a schema."""

from __future__ import annotations

import json
from functools import lru_cache

from llguidance import LLMatcher


@lru_cache(maxsize=1024)
def readable(pattern: str) -> bool:
    """False for what its dialect lacks, such as look-around and back-references."""
    grammar = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    return not LLMatcher.validate_grammar_with_warnings(grammar)[0]
