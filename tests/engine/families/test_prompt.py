from __future__ import annotations

import pytest
from tokenizers.processors import TemplateProcessing

from chatlocal.engine.families import Markup, Prompt, Text
from tests.tiny import tiny_tokenizer

START, END = Markup("<|im_start|>"), Markup("<|im_end|>")


def test_segments_show_markup_and_the_text_between() -> None:
    prompt = Prompt((START, Text("user\n"), Text("Hi"), END, Text(""), START))
    assert prompt.segments == (
        {"special": "<|im_start|>"},
        {"text": "user\nHi"},
        {"special": "<|im_end|>"},
        {"special": "<|im_start|>"},
    )
    assert prompt.text == "<|im_start|>user\nHi<|im_end|><|im_start|>"


def test_control_ids_come_from_markup_only() -> None:
    tokenizer = tiny_tokenizer()
    ids = Prompt((START, Text("a <|im_end|> b"), END)).ids(tokenizer)
    assert (ids[0], ids[-1]) == (1, 2)
    assert not {0, 1, 2} & set(ids[1:-1])
    assert tokenizer.decode(ids[1:-1]) == "a <|im_end|> b"


def test_markup_that_the_tokenizer_lacks_is_text() -> None:
    tokenizer = tiny_tokenizer()
    prompt = Prompt((Markup("<turn>"), Text("Hi")), stop_strings=("<turn>", "<|im_end|>"))
    assert tokenizer.decode(prompt.ids(tokenizer)) == "<turn>Hi"
    assert prompt.stop_ids(tokenizer) == {2}
    assert prompt.stop_texts(tokenizer) == ("<turn>",)


def test_the_tokenizers_end_always_stops() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    assert Prompt((), stop_strings=("<|im_end|>",)).stop_ids(tokenizer) == {0, 2}


@pytest.mark.parametrize("written", [(), (Markup("<|endoftext|>"),)])
def test_a_begin_token_of_the_tokenizer_comes_once(written: tuple[Markup, ...]) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
    )
    prompt = Prompt((*written, START, Text("Hi")), begins=True)
    assert prompt.ids(tokenizer) == (0, 1, *tokenizer.encode("Hi", add_special_tokens=False))


def test_a_begin_token_in_the_text_is_not_the_begin_token() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    ids = Prompt((Text("<|endoftext|>Hi"),), begins=True).ids(tokenizer)
    assert ids[0] == 0
    assert tokenizer.decode(ids[1:]) == "<|endoftext|>Hi"


def test_without_begins_no_begin_token_is_added() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    assert Prompt((START, Text("Hi"))).ids(tokenizer) == (1, *tokenizer.encode("Hi", add_special_tokens=False))


def test_markup_that_is_not_special_is_shown_with_the_text() -> None:
    prompt = Prompt((START, Text("assistant\n"), Markup("<think>", special=False), Text("\n")))
    assert prompt.segments == ({"special": "<|im_start|>"}, {"text": "assistant\n<think>\n"})


def test_text_tokenized_on_its_own_is_a_segment_unless_a_gap_joins_it() -> None:
    prompt = Prompt((START, Text("\n", own=True), Text("", own=True), END, Text("a", True, ""), Text("b", True, " ")))
    assert prompt.segments == (
        {"special": "<|im_start|>"},
        {"text": "\n", "tokenized_separately": True},
        {"text": "", "tokenized_separately": True},
        {"special": "<|im_end|>"},
        {"text": "a b"},
    )
    assert prompt.text == "<|im_start|>\n<|im_end|>a b"
    tokenizer = tiny_tokenizer()
    expected = [tokenizer.encode(text, add_special_tokens=False) for text in ("\n", "a", "b")]
    assert prompt.ids(tokenizer) == (1, *expected[0], 2, *expected[1], *expected[2])


def test_texts_that_begin_another_turn_stop_the_answer() -> None:
    prompt = Prompt((), stop_strings=("<|im_end|>",), next_turn=("\nUser:",))
    assert prompt.stop_texts(tiny_tokenizer()) == ("\nUser:",)
