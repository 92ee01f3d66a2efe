"""A chat template's prompt that ends with an unfinished answer."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine.errors import TemplateError, UnsupportedInput
from tests.engine.families import templates
from tests.engine.families.jinja_families import family, family_of, says, tokenizer_with


class TestContinuing:
    ANSWER = says(("user", "Say the dog."), ("assistant", "the dog"), ("user", "Again."), ("assistant", "the dog"))
    EVERY = (
        templates.TOOLS,
        templates.ALTERNATING,
        templates.SILENT,
        templates.THINKING,
        templates.PIECES,
        templates.HEADINGS,
        templates.ONE_LINE,
        templates.NUMBERED,
    )

    @pytest.mark.parametrize("template", EVERY)
    @pytest.mark.parametrize(
        "last",
        ["the dog", "", " the dog \n", "Say", "e", "<", "a <think>\nhm", "<think>hm", "the dog\n\n", "Again.<|im_end"],
    )
    def test_prompts_end_where_transformers_ends_them(self, template: str, last: str) -> None:
        tokenizer = tokenizer_with(template, "<think>", "</think>", "<|user|>", "<|end|>", "<|assistant|>")
        messages = [*self.ANSWER[:-1], {"role": "assistant", "content": last}]
        prompt = family_of(tokenizer).render(messages, continue_final_message=True)
        assert prompt.text == tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
        ids = tokenizer.apply_chat_template(messages, continue_final_message=True, return_dict=True)["input_ids"]
        assert list(prompt.ids(tokenizer)) == ids

    def test_content_that_goes_in_as_parts_goes_on_too(self) -> None:
        prompt = family(templates.PARTS).render(self.ANSWER, continue_final_message=True)
        assert prompt.text.endswith("user\nAgain.<|im_end|>\n<|im_start|>assistant\nthe dog")

    def test_a_thought_that_the_template_takes_apart_is_left_to_it(self) -> None:
        messages = says(("user", "u"), ("assistant", "<think>\nhm\n</think>\n\nthe dog"))
        prompt = family(templates.TOOLS, "<think>", "</think>").render(messages, continue_final_message=True)
        assert prompt.text.endswith("<|im_start|>assistant\nthe dog")
        assert prompt.opened == ""

    @pytest.mark.parametrize(
        ("last", "opened"),
        [
            ("<think>\nhm ", "<think>\nhm "),
            ("the <think>dog", "<think>dog"),
            ("<think>a</think><think>b", "<think>b"),
            ("<think>a</think>b", ""),
            ("the dog", ""),
        ],
    )
    def test_an_open_thought_is_told(self, last: str, opened: str) -> None:
        messages = says(("user", "<think>u"), ("assistant", last))
        assert family(templates.SILENT).render(messages, continue_final_message=True).opened == opened
        trimmed = family(templates.ALTERNATING).render(messages, continue_final_message=True)
        assert trimmed.opened == opened.rstrip()

    def test_a_thought_that_is_not_written_is_not_open(self) -> None:
        template = "{% for m in messages %}{{ m.content.split('<think>')[-1] }}{% endfor %}"
        prompt = family(template).render(says(("user", "u"), ("assistant", "<think>hm")), continue_final_message=True)
        assert (prompt.text, prompt.opened) == ("uhm", "")

    def test_it_may_be_a_turn_made_of_several(self) -> None:
        messages = says(("user", "u"), ("assistant", "a"), ("assistant", "b"))
        prompt = family(templates.ALTERNATING).render(messages, continue_final_message=True)
        assert prompt.text.endswith("<|im_start|>model\na\n\nb")

    def test_no_question_comes_after_it(self) -> None:
        chosen = family(templates.TOOLS)
        with_question = chosen.render(self.ANSWER, add_generation_prompt=True, continue_final_message=True)
        assert with_question == chosen.render(self.ANSWER, add_generation_prompt=False, continue_final_message=True)

    def test_characters_that_mark_nothing_are_content(self) -> None:
        tool = {"name": "w", "description": "\ue000\ue001", "parameters": {}}
        messages = says(("user", "\ue002"), ("assistant", "\ue003 a\ue004"))
        prompt = family(templates.TOOLS).render(messages, [tool], continue_final_message=True)
        assert prompt.text.endswith("assistant\n\ue003 a\ue004")
        assert '"description": "\ue000\ue001"' in prompt.text

    @pytest.mark.parametrize(
        ("last", "what"),
        [
            ({"role": "user", "content": "u"}, "user message"),
            (
                {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}]},
                "calls",
            ),
        ],
    )
    def test_what_is_no_answer_in_text_is_refused(self, last: dict[str, Any], what: str) -> None:
        with pytest.raises(UnsupportedInput, match=f"the last message is a .*{what}"):
            family(templates.TOOLS).render([*self.ANSWER, last], continue_final_message=True)

    def test_an_answer_that_the_template_drops_is_an_error(self) -> None:
        template = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
        with pytest.raises(TemplateError, match="leaves the last message out"):
            family(template).render(self.ANSWER, continue_final_message=True)
