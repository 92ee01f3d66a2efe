"""Characters of several tokens in JSON text: those that are asked for can be written, and no others."""

from __future__ import annotations

import json

import pytest

from tests.engine.constraints.test_json_schema import TOKENIZER, compiled
from tests.engine.constraints.walking import spelled, written

TEXTS = spelled(TOKENIZER)


@pytest.mark.parametrize("text", ["小狗🦥龘", "👨‍👩‍👧 é\u0301", "🫠🫶"])
def test_a_plain_string_takes_characters_of_all_scripts(text: str) -> None:
    assert written(compiled({"type": "string"}), TOKENIZER, json.dumps(text, ensure_ascii=False)).may_end


def test_within_a_character_only_what_leads_to_a_value_may_follow() -> None:
    constraint = compiled({"enum": ["龘", "🦥"]})
    first, *rest = TOKENIZER.encode("🦥", add_special_tokens=False)
    assert rest
    state = written(constraint, TOKENIZER, '"')
    state.advance(first)
    text = TEXTS[first]
    for _ in range(8):
        allowed = state.mask().nonzero().flatten().tolist()
        assert allowed
        assert all('🦥"'.encode().startswith(text + TEXTS[id]) for id in allowed if id not in state.end_ids)
        if state.done:
            break
        state.advance(allowed[0])
        text += TEXTS[allowed[0]]
    assert text.decode() == '🦥"'
