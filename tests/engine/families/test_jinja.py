from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken

from chatlocal.engine import families
from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families import JinjaFamily
from chatlocal.engine.families.control import control_tokens
from tests.engine.families import templates
from tests.tiny import tiny_tokenizer

Messages = list[dict[str, Any]]


def tokenizer_with(template: str, *markup: str) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in markup])
    tokenizer.chat_template = template
    return tokenizer


def family_of(tokenizer: Any) -> families.Family:
    return families.resolve(tokenizer, None).family


def family(template: str, *markup: str) -> families.Family:
    return family_of(tokenizer_with(template, *markup))


def says(*pairs: tuple[str, Any]) -> Messages:
    return [{"role": role, "content": content} for role, content in pairs]


def official_ids(tokenizer: Any, messages: Messages, **options: Any) -> list[int]:
    return list(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True, **options)[
            "input_ids"
        ]
    )


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


def _call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
