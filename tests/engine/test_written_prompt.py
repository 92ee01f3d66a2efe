"""Prompts that are written out already, and the engine's way to take them."""

from __future__ import annotations

import pytest

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.written_prompt import written_prompt
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

WRITTEN = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<b>"


def test_control_tokens_are_markup_and_the_rest_is_text() -> None:
    prompt = written_prompt(WRITTEN, tiny_tokenizer())
    assert prompt.segments == (
        {"special": "<|im_start|>"},
        {"text": "user\nHi"},
        {"special": "<|im_end|>"},
        {"text": "\n"},
        {"special": "<|im_start|>"},
        {"text": "assistant\n<b>"},
    )
    assert prompt.text == WRITTEN


@pytest.mark.parametrize("text", [WRITTEN, "plain <|im_ text", "<|im_end|>", "a<|endoftext|><|im_start|>"])
def test_ids_are_those_of_the_tokenizer(text: str) -> None:
    tokenizer = tiny_tokenizer()
    ids = written_prompt(text, tokenizer).ids(tokenizer)
    assert ids == tuple(tokenizer.encode(text, add_special_tokens=False))


def test_a_begin_token_comes_once() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    assert tokenizer.encode("Hi")[0] == 0
    with_it, without = (written_prompt(text, tokenizer).ids(tokenizer) for text in ("<|endoftext|>Hi", "Hi"))
    assert with_it == without
    assert with_it.count(0) == 1


def test_a_tokenizer_without_control_tokens_has_text_only() -> None:
    class Plain:
        chat_template = None
        added_tokens_decoder: dict[int, object] = {}  # noqa: RUF012  (a tokenizer's own attribute)

    assert written_prompt("<s>Hi", Plain()).segments == ({"text": "<s>Hi"},)


def test_the_engine_takes_a_prompt_in_place_of_messages() -> None:
    engine = scripted_engine("Hello")
    prompt = written_prompt(WRITTEN, engine.tokenizer)
    assert engine.generate(prompt).message.content == "Hello"
    assert backend_of(engine).requests[0].prompt_ids == prompt.ids(engine.tokenizer)
    assert engine.render(prompt) is prompt
    assert engine.count_tokens(prompt) == len(prompt.ids(engine.tokenizer))


def test_nothing_is_left_to_render_in_a_prompt() -> None:
    engine = scripted_engine("Hello")
    prompt = written_prompt(WRITTEN, engine.tokenizer)
    with pytest.raises(UnsupportedInput, match="written already"):
        engine.generate(prompt, tools=[{"name": "add"}])
    with pytest.raises(UnsupportedInput, match="written already"):
        engine.render(prompt, merge_system=True)
