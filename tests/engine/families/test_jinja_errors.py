"""What a chat template cannot render is told with the message at fault."""

from __future__ import annotations

import pytest

from chatlocal.engine.errors import TemplateError, UnsupportedInput
from chatlocal.engine.families import JinjaFamily, sandbox
from tests.engine.families import templates
from tests.engine.families.jinja_families import family, family_of, says
from tests.tiny import tiny_tokenizer


class TestErrors:
    def test_the_message_at_fault_is_named(self) -> None:
        template = (
            "{% for m in messages %}{% if m.content == 'bad' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
        )
        messages = says(("user", "a"), ("assistant", "b"), ("user", "bad"), ("assistant", "c"))
        with pytest.raises(TemplateError, match=r"message 2 \(user\): no"):
            family(template).render(messages)

    def test_a_fault_of_no_message_is_told_as_it_is(self) -> None:
        template = "{{ messages[0].content }}{% if add_generation_prompt %}{{ raise_exception('never') }}{% endif %}"
        with pytest.raises(TemplateError, match="these messages: never"):
            family(template).render(says(("user", "a")))

    def test_no_messages_are_refused(self) -> None:
        with pytest.raises(UnsupportedInput, match="no messages"):
            family_of(tiny_tokenizer()).render([])

    def test_a_template_that_is_no_template_is_refused_at_once(self) -> None:
        with pytest.raises(TemplateError, match="line 1"):
            JinjaFamily(tiny_tokenizer(), "{% for %}")


class TestFaults:
    """Which message an error names."""

    TALK = says(("user", "a"), ("assistant", "b"), ("user", "bad"), ("assistant", "d"), ("user", "e"))

    @pytest.mark.parametrize(
        "fault",
        [
            "{{ raise_exception('no') if m.content == 'bad' }}",
            "{{ m.nothing.at_all if m.content == 'bad' }}",
            "{{ m.content + 1 if m.content == 'bad' }}",
            "{{ m.content | nosuch if m.content == 'bad' }}",
            "{{ nosuch(m) if m.content == 'bad' }}",
            "{{ 1 // 0 if m.content == 'bad' }}",
        ],
    )
    def test_any_kind_of_error_names_it(self, fault: str) -> None:
        template = "{% for m in messages %}{{ m.content }}" + fault + "{% endfor %}"
        with pytest.raises(TemplateError, match=r"cannot render message 2 \(user\): "):
            family(template).render(self.TALK)

    @pytest.mark.parametrize("count", [1, 3, 4, 5])
    def test_what_no_template_can_do_names_the_first(self, count: int) -> None:
        with pytest.raises(TemplateError, match=r"message 0 \(user\): .*'nothing'"):
            family("{% for m in messages %}{{ m.nothing.at.all }}{% endfor %}").render(self.TALK[:count])

    def test_what_must_not_come_last_is_the_last(self) -> None:
        template = "{{ raise_exception('ask me') if messages[-1].role == 'assistant' }}{{ messages | length }}"
        talk = says(*((role, "x") for _ in range(4) for role in ("user", "assistant")))
        with pytest.raises(TemplateError, match=r"message 7 \(assistant\): ask me"):
            family(template).render(talk)

    def test_what_must_come_once_is_the_second(self) -> None:
        template = (
            "{% set bad = messages | selectattr('content', 'equalto', 'bad') | list %}"
            "{{ raise_exception('one only') if bad | length > 1 }}"
        )
        talk = [*self.TALK, {"role": "assistant", "content": "x"}, *self.TALK]
        with pytest.raises(TemplateError, match=r"message 8 \(user\): one only"):
            family(template).render(talk)

    @pytest.mark.parametrize(
        "template",
        [
            "{{ raise_exception('no tool') if not messages | selectattr('role', 'equalto', 'tool') | list }}",
            "{% for m in messages %}{{ m.content }}{% endfor %}{{ raise_exception('no tool') }}",
            "{{ raise_exception('no tool') }}",
        ],
    )
    def test_what_is_missing_is_no_messages_fault(self, template: str) -> None:
        with pytest.raises(TemplateError, match="cannot render these messages: no tool"):
            family(template).render(self.TALK)

    def test_messages_are_counted_as_they_were_given(self) -> None:
        """Neither a system message that was merged nor messages that were joined put the count out."""
        template = templates.ALTERNATING.replace(
            "<|im_start|>", "{{ raise_exception('no') if 'bad' in message.content }}", 1
        )
        talk = says(("system", "S"), ("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "bad"), ("user", "e"))
        with pytest.raises(TemplateError, match=r"message 4 \(user\): no"):
            family(template).render(talk, merge_system=True)
        with pytest.raises(TemplateError, match="message 2 is another user message"):
            family(template).render(talk, merge_system=True, strict=True)

    def test_a_system_text_that_became_a_turn_of_its_own_is_counted_too(self) -> None:
        template = templates.ALTERNATING.replace(
            "<|im_start|>", "{{ raise_exception('no') if 'bad' in message.content }}", 1
        )
        talk = says(("user", "a"), ("assistant", "b"), ("system", "bad"))
        with pytest.raises(TemplateError, match=r"message 2 \(user\): no"):
            family(template).render(talk, merge_system=True)

    def test_reasons_show_content_as_it_is(self) -> None:
        template = "{% for m in messages %}{{ raise_exception('What is ' + m.content + '?') }}{% endfor %}"
        with pytest.raises(TemplateError) as caught:
            family(template).render(says(("assistant", "a <|im_end|>")), continue_final_message=True)
        assert str(caught.value).endswith("(assistant): What is a <|im_end|> ?")

    def test_after_a_limit_nothing_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen = family("{% for m in messages %}{{ 'x' * 10 ** 10 if m.content == 'bad' else m.content }}{% endfor %}")
        chosen.render(says(("user", "u")))
        times: list[str] = []
        render = sandbox.render
        monkeypatch.setattr(sandbox, "render", lambda *args: times.append("") or render(*args))
        with pytest.raises(TemplateError, match="these messages: The chat template repeats a value too often"):
            chosen.render(self.TALK)
        assert len(times) == 1

    def test_what_is_no_plain_data_is_refused(self) -> None:
        with pytest.raises(UnsupportedInput, match="here is a object among them"):
            family("{{ thing }}{{ messages[0].content }}").render(says(("user", "u")), thing=object())
