"""Where answers end, found in a chat template."""

from __future__ import annotations

import pytest

from tests.engine.families import templates
from tests.engine.families.jinja_families import family, family_of, says, tokenizer_with
from tests.tiny import tiny_tokenizer


class TestStops:
    def test_the_token_after_an_answer_and_the_tokenizers_end(self) -> None:
        tokenizer = tiny_tokenizer()
        tokenizer.eos_token = "<|endoftext|>"
        assert family_of(tokenizer).render(says(("user", "u"))).stop_strings == ("<|im_end|>", "<|endoftext|>")

    def test_where_an_answer_has_no_end_the_next_turn_is_it(self) -> None:
        template = (
            "{% for m in messages %}{{ '<|im_start|>' if m.role == 'user' else '\n' }}{{ m.content }}{% endfor %}"
        )
        assert family(template).render(says(("user", "u"))).stop_strings == ("<|im_start|>", "<|im_end|>")

    def test_an_end_that_is_added_and_not_special_is_one(self) -> None:
        tokenizer = tokenizer_with(templates.PIECES, "<|user|>", "<|assistant|>", "<|end|>")
        prompt = family_of(tokenizer).render(says(("user", "u")))
        assert prompt.stop_strings == ("<|end|>", "<|im_end|>")
        assert prompt.stop_ids(tokenizer) == set(tokenizer.convert_tokens_to_ids(["<|end|>", "<|im_end|>"]))
        assert prompt.next_turn == ()

    def test_behind_an_end_that_is_not_special_one_that_is_counts_too(self) -> None:
        template = (
            "{% for m in messages %}{{ '<q>' if m.role == 'user' }}{{ m.content + '</a><|im_start|>' }}{% endfor %}"
        )
        assert family(template, "</a>").render(says(("user", "u"))).stop_strings == (
            "</a>",
            "<|im_start|>",
            "<|im_end|>",
        )

    @pytest.mark.parametrize(
        ("template", "starts"),
        [
            (templates.HEADINGS, ("\n\n### User:", "\n### User:")),
            (templates.ONE_LINE, (" USER:", "\nUSER:")),
            (templates.NUMBERED, ("\n\n[Round", "\n[Round", "\n问：")),
            (templates.NAMES, ("\nuser\n",)),
            (templates.PIECES, ("<|end|>", "\n<|end|>")),  # the tokenizer has no such token
            (templates.PARTS, ()),
            (templates.DATED, ()),
        ],
    )
    def test_where_turns_begin_in_plain_text_that_is_a_stop(self, template: str, starts: tuple[str, ...]) -> None:
        tokenizer = tokenizer_with(template)
        prompt = family_of(tokenizer).render(says(("user", "u")))
        assert prompt.next_turn == starts
        assert set(starts) <= set(prompt.stop_texts(tokenizer))

    @pytest.mark.parametrize(
        ("user", "assistant"),
        [
            ("{}\n", "{}\n"),
            ("Q: {}\n", "A: {}\n"),
            ("{} ", "{} "),
            ("> {}\n", "{}\n"),
            ("### {}\n", "{}\n\n"),
            ("- {}\n", "- {}\n"),
            (" and {}", " or {}"),
            ("user {}", " assistant {}"),
            (": {}", ": {}"),
            ("Q: {}", " A: {}"),
        ],
    )
    def test_what_answers_say_themselves_never_is(self, user: str, assistant: str) -> None:
        shown = {role: form.replace("{}", "' + m.content + '") for role, form in (("u", user), ("a", assistant))}
        template = (
            f"{{% for m in messages %}}{{{{ '{shown['u']}' if m.role == 'user' else '{shown['a']}' }}}}{{% endfor %}}"
        )
        prose = "\n# Heading\n\n### Part: two\n- and a user: or\n> so the assistant said\n---\n1. A: B, Q and A.\n"
        prompt = family(template).render(says(("user", "u")))
        assert prompt.text == user.replace("{}", "u")
        assert not any(start in prose for start in prompt.next_turn)

    def test_text_before_the_token_that_ends_a_turn_is_a_stop(self) -> None:
        template = (
            "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content + '\n[END OF TURN]\n' }}{% endfor %}"
        )
        prompt = family(template).render(says(("user", "u")))
        assert prompt.next_turn == ("\n[END OF TURN]",)
        assert prompt.stop_strings == ("<|im_start|>", "<|im_end|>")

    def test_templates_that_want_parts_are_asked_with_parts(self) -> None:
        tokenizer = tokenizer_with(templates.PARTS)
        tokenizer.eos_token = "<|endoftext|>"
        assert family_of(tokenizer).render(says(("user", "u"))).stop_strings == ("<|im_end|>", "<|endoftext|>")
