from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine import families
from chatlocal.engine.errors import UnsupportedInput
from tests.tiny import tiny_tokenizer


def test_no_system_turn_is_made_up_or_left_empty() -> None:
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]
    prompt = families.get("chatml").render(messages, add_generation_prompt=False)
    assert prompt.text == "<|im_start|>user\nHi<|im_end|>\n"


def test_content_in_parts_none_and_repeated_roles() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": None},
    ]
    prompt = families.get("chatml").render(messages, add_generation_prompt=False, merge_system=True, strict=True)
    assert prompt.text == "<|im_start|>user\nab<|im_end|>\n<|im_start|>user\n<|im_end|>\n"


def test_the_end_of_a_turn_stops_the_answer() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    prompt = families.get("chatml").render([{"role": "user", "content": "Hi"}])
    assert prompt.stop_ids(tokenizer) == {0, 2}
    assert prompt.stop_texts(tokenizer) == ()


@pytest.mark.parametrize(
    ("message", "options", "reason"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x.png"}}]}, {}, "image"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, {}, "Message 0"),
        ({"role": "user", "content": "Hi"}, {"enable_thinking": True}, "enable_thinking"),
    ],
)
def test_what_it_cannot_write_is_refused(message: dict[str, Any], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedInput, match=reason):
        families.get("chatml").render([message], **options)
