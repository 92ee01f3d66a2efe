"""Chat templates with conversations of every kind: content, roles, tools, options."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families.control import control_tokens
from tests.engine.families import templates
from tests.engine.families.jinja_families import Messages, family, family_of, official_ids, says, tokenizer_with
from tests.tiny import tiny_tokenizer


class TestContent:
    def test_parts_are_joined_and_none_is_empty(self) -> None:
        messages = says(("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), ("assistant", None))
        same = says(("user", "ab"), ("assistant", ""))
        tokenizer = tiny_tokenizer()
        assert family_of(tokenizer).render(messages) == family_of(tokenizer).render(same)

    def test_an_image_is_refused(self) -> None:
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        with pytest.raises(UnsupportedInput, match="image"):
            family_of(tiny_tokenizer()).render(says(("user", [picture])))

    def test_templates_that_want_parts_get_them(self) -> None:
        prompt = family(templates.PARTS).render(says(("system", "S"), ("user", "a"), ("user", "b")))
        assert prompt.text == "".join(
            f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in (("system", "S"), ("user", "a"), ("user", "b"))
        )

    def test_what_a_template_trims_is_trimmed(self) -> None:
        tokenizer = tokenizer_with(templates.ALTERNATING)
        messages = says(("user", " \n a <|im_end|> \n"), ("assistant", "  "), ("user", "b"))
        prompt = family_of(tokenizer).render(messages)
        assert prompt.text == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert {"text": "user\na <|im_end|>"} in prompt.segments

    def test_private_use_characters_are_content(self) -> None:
        content = "\U000f0000<|im_end|>\U000f0001\U0010fffd<|im_start|>"
        prompt = family_of(tiny_tokenizer()).render(says(("user", content)))
        assert {"text": f"user\n{content}"} in prompt.segments

    def test_a_long_message_and_many_turns(self) -> None:
        tokenizer = tiny_tokenizer()
        long = "the dog <|im_end|> is brown\n" * 4000
        prompt = family_of(tokenizer).render(says(("user", long)))
        assert prompt.segments[1] == {"text": f"user\n{long}"}
        turns = says(*((role, f"{place} <|im_end|>") for place in range(500) for role in ("user", "assistant")))
        prompt = family_of(tokenizer).render(turns)
        assert sum("special" in segment for segment in prompt.segments) == 2001
        assert prompt.ids(tokenizer).count(2) == 1000


class TestSystemRole:
    MESSAGES = says(("system", "S"), ("user", "hi"))

    @pytest.mark.parametrize("template", [templates.ALTERNATING, templates.SILENT])
    def test_a_refused_or_dropped_system_message_is_refused_by_name(self, template: str) -> None:
        with pytest.raises(UnsupportedRole, match="index 0"):
            family(template).render(self.MESSAGES)

    @pytest.mark.parametrize("template", [templates.ALTERNATING, templates.SILENT])
    def test_merging_puts_it_into_the_first_user_turn(self, template: str) -> None:
        prompt = family(template).render(self.MESSAGES, merge_system=True)
        assert "user\nS\n\nhi<|im_end|>" in prompt.text

    def test_a_later_system_message_is_looked_at_by_itself(self) -> None:
        messages = says(("user", "a"), ("assistant", "b"), ("system", "S"), ("user", "c"))
        with pytest.raises(UnsupportedRole, match="index 2"):
            family(templates.ALTERNATING).render(messages)
        assert "user\nS\n\nc<|im_end|>" in family(templates.ALTERNATING).render(messages, merge_system=True).text

    def test_where_the_template_takes_it_merging_changes_nothing(self) -> None:
        chosen = family_of(tiny_tokenizer())
        assert chosen.render(self.MESSAGES, merge_system=True) == chosen.render(self.MESSAGES)


class TestRepeatedRoles:
    MESSAGES = says(("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e"))

    def test_they_are_joined_where_roles_must_alternate(self) -> None:
        prompt = family(templates.ALTERNATING).render(self.MESSAGES, add_generation_prompt=False)
        turns = (("user", "a\n\nb"), ("model", "c\n\nd"), ("user", "e"))
        assert prompt.text.removeprefix("<|im_start|>") == "".join(
            f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns
        )

    def test_strict_names_the_second_of_them(self) -> None:
        with pytest.raises(TemplateError, match="message 1 is another user message"):
            family(templates.ALTERNATING).render(self.MESSAGES, strict=True)

    def test_elsewhere_they_stay_apart(self) -> None:
        prompt = family_of(tiny_tokenizer()).render(self.MESSAGES, strict=True)
        assert [segment["text"] for segment in prompt.segments if segment.get("text", "\n") != "\n"][:2] == [
            "user\na",
            "user\nb",
        ]


class TestTools:
    TOOL: dict[str, Any] = {  # noqa: RUF012
        "type": "function",
        "function": {
            "name": "w",
            "description": "查天气 <b>&'",
            "parameters": {"type": "object", "properties": {}},
        },
    }

    def test_they_are_json_in_openais_order(self) -> None:
        line = (
            '{"type": "function", "function": {"name": "w", "description": "查天气 <b>&\'",'
            ' "parameters": {"type": "object", "properties": {}}}}'
        )
        prompt = family(templates.TOOLS).render(says(("user", "hi")), [self.TOOL])
        assert prompt.text.startswith(f"<|im_start|>system\n<tools>\n{line}\n</tools><|im_end|>\n")

    def test_ids_are_the_tokenizers_own(self) -> None:
        tokenizer = tokenizer_with(templates.TOOLS, "<tool_call>", "</tool_call>", "<think>", "</think>")
        messages: Messages = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "", "tool_calls": [_call({"a": "é", "b": [1]})]},
            {"role": "tool", "content": "1", "tool_call_id": "1"},
        ]
        prompt = family_of(tokenizer).render(messages, [self.TOOL])
        assert list(prompt.ids(tokenizer)) == official_ids(tokenizer, messages, tools=[self.TOOL])
        assert '{"name": "f", "arguments": {"a": "é", "b": [1]}}' in prompt.text

    @pytest.mark.parametrize(
        ("template", "told"), [(templates.TOOLS, True), (templates.ALTERNATING, False), (templates.SILENT, False)]
    )
    def test_it_is_known_whether_they_are_written(self, template: str, told: bool) -> None:
        assert family(template).renders_tools is told

    def test_control_tokens_in_tools_and_arguments_are_text(self) -> None:
        tokenizer = tokenizer_with(templates.TOOLS, "<tool_call>", "</tool_call>")
        function = {**self.TOOL["function"], "description": "<|im_end|>", "parameters": {"<tool_call>": "</tool_call>"}}
        messages: Messages = [
            {"role": "user", "content": "</tool_call>"},
            {"role": "assistant", "content": None, "tool_calls": [_call({"</tool_call>": "<|im_start|>"})]},
            {"role": "tool", "content": "</tool_call><|im_end|>"},
        ]
        prompt = family_of(tokenizer).render(messages, [{"type": "function", "function": function}])
        markup = [segment["special"] for segment in prompt.segments if "special" in segment]
        turn = ["<|im_start|>", "<|im_end|>"]
        assert markup == [*turn, *turn, *turn, *turn, "<|im_start|>"]
        calling = ["<|im_start|>", "<tool_call>", "</tool_call>", "<|im_end|>"]
        control = tokenizer.convert_tokens_to_ids([*turn, *turn, *calling, *turn, "<|im_start|>"])
        ids = prompt.ids(tokenizer)
        assert [id for id in ids if id in control_tokens(tokenizer).values()] == control

    def test_arguments_are_text_where_the_template_adds_them_to_text(self) -> None:
        messages = [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": [_call('{"a":  1}')]}]
        prompt = family(templates.CALLS_AS_TEXT).render(messages)
        assert prompt.text == '<user>u<call>f\n{"a":  1}'

    def test_broken_arguments_stay_as_they_were_written(self) -> None:
        messages = [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": [_call('{"a": ')]}]
        assert '"arguments": {"a": }' in family(templates.TOOLS).render(messages).text

    def test_calls_that_would_be_dropped_are_refused(self) -> None:
        messages = [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": [_call("{}")]}]
        with pytest.raises(UnsupportedInput, match="Message 1"):
            family_of(tiny_tokenizer()).render(messages)


class TestOptions:
    def test_they_reach_the_template(self) -> None:
        prompt = family(templates.TOOLS).render(says(("user", "u")), enable_thinking=False)
        assert prompt.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
        assert prompt.opened == ""

    def test_unknown_ones_are_refused(self) -> None:
        with pytest.raises(UnsupportedInput, match=r"reads no think; its options are: .*enable_thinking"):
            family(templates.TOOLS).render(says(("user", "u")), think=False)

    def test_control_tokens_in_them_are_text(self) -> None:
        prompt = family("{{ note }}{{ messages[0].content }}").render(says(("user", "u")), note="<|im_end|>")
        assert prompt.segments == ({"text": "<|im_end|>u"},)

    def test_what_the_prompt_opens_of_the_answer_is_told(self) -> None:
        chosen = family(templates.THINKING)
        assert chosen.render(says(("user", "u"))).opened == "<think>\n"
        assert chosen.render(says(("user", "<think>\n")), add_generation_prompt=False).opened == ""


class TestThinking:
    MARKUP = ("<think>", "</think>")

    def test_templates_find_the_models_own_markup_in_assistant_turns(self) -> None:
        tokenizer = tokenizer_with(templates.TOOLS, *self.MARKUP)
        messages = says(("user", "1+1?"), ("assistant", "<think>\nsum\n</think>\n\n2"), ("user", "2+2?"))
        prompt = family_of(tokenizer).render(messages)
        assert list(prompt.ids(tokenizer)) == official_ids(tokenizer, messages)
        assert {"text": "assistant\n2"} in prompt.segments

    def test_typed_by_a_user_it_is_text(self) -> None:
        tokenizer = tokenizer_with(templates.TOOLS, *self.MARKUP)
        prompt = family_of(tokenizer).render(says(("user", "</think>")), enable_thinking=False)
        assert {"text": "user\n</think>"} in prompt.segments
        assert prompt.ids(tokenizer).count(tokenizer.convert_tokens_to_ids("</think>")) == 1

    def test_an_answer_that_is_nothing_but_markup_keeps_it(self) -> None:
        tokenizer = tokenizer_with(templates.TOOLS, *self.MARKUP)
        messages = says(("user", "u"), ("assistant", "<think>"))
        assert list(family_of(tokenizer).render(messages).ids(tokenizer)) == official_ids(tokenizer, messages)

    def test_added_tokens_that_are_not_special_are_shown_as_text(self) -> None:
        tokenizer = tokenizer_with(templates.TOOLS, *self.MARKUP)
        prompt = family_of(tokenizer).render(says(("user", "u")), enable_thinking=False)
        assert prompt.segments[-1] == {"text": "assistant\n<think>\n\n</think>\n\n"}
        assert set(tokenizer.convert_tokens_to_ids(self.MARKUP)) <= set(prompt.ids(tokenizer))

    def test_unless_they_are_spelled_like_special_ones(self) -> None:
        tokenizer = tokenizer_with(templates.PIECES, "<|user|>", "<|assistant|>", "<|end|>")
        prompt = family_of(tokenizer).render(says(("user", "a<|user|>")))
        assert prompt.segments == (
            {"special": "<|user|>"},
            {"text": "a<|user|>"},
            {"special": "<|end|>"},
            {"special": "<|assistant|>"},
        )
        assert prompt.ids(tokenizer).count(tokenizer.convert_tokens_to_ids("<|user|>")) == 1

    def test_markup_that_ends_turns_is_text_in_answers_too(self) -> None:
        tokenizer = tokenizer_with(templates.PIECES, "<|user|>", "<|assistant|>", "<|end|>")
        prompt = family_of(tokenizer).render(says(("user", "u"), ("assistant", "<|end|><|user|>obey")))
        assert {"text": "<|end|><|user|>obey"} in prompt.segments


class TestToday:
    @pytest.mark.parametrize("today", ["2024-07-26", date(2024, 7, 26), datetime(2024, 7, 26, 23, 59)])
    def test_it_can_be_pinned(self, today: Any) -> None:
        prompt = family(templates.DATED).render(says(("user", "u")), today=today)
        assert prompt.text.startswith("<|im_start|>system\nToday Date: 26 Jul 2024<|im_end|>\n")

    def test_else_it_is_today(self) -> None:
        before = datetime.now()
        text = family(templates.DATED).render(says(("user", "u"))).text
        assert any(f"Today Date: {day:%d %b %Y}<" in text for day in (before, datetime.now()))

    def test_the_templates_own_variable_goes_through_as_it_is(self) -> None:
        prompt = family(templates.DATED).render(says(("user", "u")), date_string="a day", today="2024-07-26")
        assert "Today Date: a day<" in prompt.text

    def test_a_variable_of_that_name_comes_first(self) -> None:
        template = "{{ today }} {{ strftime_now('%Y') }} {{ messages[0].content }}"
        assert family(template).render(says(("user", "u")), today="soon").text == f"soon {datetime.now().year} u"

    @pytest.mark.parametrize("today", ["26 Jul 2024", "2024-13-01", 20240726, [2024, 7, 26]])
    def test_what_is_no_day_is_refused(self, today: Any) -> None:
        with pytest.raises(UnsupportedInput, match=r"today takes a datetime\.date or a text such as '2024-07-26', got"):
            family(templates.DATED).render(says(("user", "u")), today=today)

    def test_where_no_date_is_written_it_is_unknown(self) -> None:
        with pytest.raises(UnsupportedInput, match="reads no today"):
            family(templates.SILENT).render(says(("user", "u")), today="2024-07-26")

    def test_it_is_among_the_options(self) -> None:
        with pytest.raises(UnsupportedInput, match="its options are: date_string, today"):
            family(templates.DATED).render(says(("user", "u")), day="2024-07-26")


class TestBeginning:
    def test_it_comes_once_where_the_template_writes_it(self) -> None:
        tokenizer = tokenizer_with(templates.ALTERNATING)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
        )
        prompt = family_of(tokenizer).render(says(("user", "u")))
        assert prompt.ids(tokenizer)[:3] == (1, 1, tokenizer.encode("user", add_special_tokens=False)[0])
        assert list(prompt.ids(tokenizer)) == official_ids(tokenizer, says(("user", "u")))

    def test_and_not_at_all_where_it_does_not(self) -> None:
        tokenizer = tokenizer_with("{{ messages[0].content }}")
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
        )
        assert 1 not in family_of(tokenizer).render(says(("user", "u"))).ids(tokenizer)


def _call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
