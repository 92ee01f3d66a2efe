"""Mistral's formats against mistral-common: its prompts, its refusals, and ids where its vocabularies are installed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlocal.engine import families
from chatlocal.engine.errors import TemplateError, UnsupportedInput, UnsupportedRole
from chatlocal.engine.families import Markup, Prompt

_GOLDEN = Path(__file__).parents[2] / "golden"
# What mistral-common 1.13.1 makes of conversations with rough edges, in its serving mode.
EDGES = json.loads((_GOLDEN / "mistral_prompts.json").read_text("utf-8"))
NAMES = ("mistral", "mixtral", "mistral_v2", "mistral_v3", "mistral-nemo", "mistral_v7")
WITH_TOOLS = NAMES[2:]
WITH_IDS = NAMES[3:]
TOOL = {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}


def user(text: str | None) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls), **more}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def call(id: str, arguments: str = "{}", name: str = "now") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id: str | None, text: str = "9:00", name: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text, "name": name}


def render(name: str, *messages: dict[str, Any], tools: Any = None, **options: Any) -> Prompt:
    return families.get(name).render(messages, tools, **options)


def rendered(case: dict[str, Any]) -> Prompt:
    goes_on = case.get("continue_final_message", False)
    return families.get(case["family"]).render(case["messages"], case.get("tools"), continue_final_message=goes_on)


@pytest.mark.parametrize("case", [case for case in EDGES if "error" not in case], ids=lambda case: case["id"])
def test_prompts_are_those_of_mistral_common(case: dict[str, Any]) -> None:
    assert list(rendered(case).segments) == case["expected_segments"]


@pytest.mark.parametrize("case", [case for case in EDGES if "error" in case], ids=lambda case: case["id"])
def test_what_mistral_common_refuses_is_refused_by_name(case: dict[str, Any]) -> None:
    with pytest.raises((TemplateError, UnsupportedInput), match=rf"(The {case['family']} format|Message \d)"):
        rendered(case)


@pytest.mark.parametrize("name", NAMES)
def test_the_system_text_goes_where_the_version_has_it(name: str) -> None:
    text = render(name, system("Rules."), user("one"), assistant("two"), user("three")).text
    expected = {
        "mistral": "<s>[INST] Rules.\n\none [/INST] two</s>[INST] three [/INST]",
        "mistral_v7": "<s>[SYSTEM_PROMPT]Rules.[/SYSTEM_PROMPT][INST]one[/INST]two</s>[INST]three[/INST]",
    }
    expected["mixtral"] = expected["mistral"]
    assert text == expected.get(name, "<s>[INST]one[/INST]two</s>[INST]Rules.\n\nthree[/INST]")


@pytest.mark.parametrize("name", NAMES)
def test_a_system_message_behind_an_answer_is_refused_by_index_or_merged(name: str) -> None:
    messages = [user("a"), assistant("b"), system("c"), user("d")]
    with pytest.raises(UnsupportedRole, match="index 2"):
        render(name, *messages)
    merged = render(name, *messages, merge_system=True)
    assert merged == render(name, user("a"), assistant("b"), user("c\n\nd"))


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_can_end_the_conversation_when_none_is_asked_for(name: str) -> None:
    messages = [user("a"), assistant("b")]
    with pytest.raises(TemplateError, match="continue_final_message"):
        render(name, *messages)
    assert render(name, *messages, add_generation_prompt=False).text.endswith("b</s>")
    assert render(name, *messages, continue_final_message=True).text.endswith("b")


@pytest.mark.parametrize("name", NAMES)
def test_asking_for_an_answer_adds_nothing(name: str) -> None:
    assert render(name, user("a")) == render(name, user("a"), add_generation_prompt=False)


@pytest.mark.parametrize("name", NAMES)
def test_strict_names_the_message_that_would_be_joined(name: str) -> None:
    messages = [user("a"), assistant("b"), assistant("c"), user("d")]
    assert render(name, *messages) == render(name, user("a"), assistant("b\n\nc"), user("d"))
    with pytest.raises(TemplateError, match="message 2 is another assistant"):
        render(name, *messages, strict=True)


def test_strict_puts_no_user_turn_before_an_answer() -> None:
    messages = [assistant("Welcome."), user("Hi")]
    assert render("mistral_v3", *messages).text == "<s>[INST][/INST]Welcome.</s>[INST]Hi[/INST]"
    with pytest.raises(TemplateError, match="user message first"):
        render("mistral_v3", *messages, strict=True)
    assert render("mistral_v7", *messages, strict=True).text == "<s>Welcome.</s>[INST]Hi[/INST]"


@pytest.mark.parametrize("name", NAMES)
def test_past_reasoning_is_left_out(name: str) -> None:
    plain = render(name, user("a"), assistant("b"), user("c"))
    assert render(name, user("a"), assistant("b", reasoning_content="Hm."), user("c")) == plain


@pytest.mark.parametrize("name", NAMES)
def test_a_past_answer_needs_text(name: str) -> None:
    with pytest.raises(TemplateError, match=name):
        render(name, user("a"), assistant(None, reasoning_content="Hm."), user("c"))


def test_version_2_writes_results_by_name_and_forgets_finished_rounds() -> None:
    first = [user("a"), assistant(None, call("1")), result("1", '{"h":9}')]
    prompt = render("mistral_v2", *first)
    assert prompt.text == (
        '<s>[INST]a[/INST][TOOL_CALLS][{"name": "now", "arguments": {}}]</s>'
        '[TOOL_RESULTS][{"name": "now", "content": {"h": 9}}][/TOOL_RESULTS]'
    )
    assert render("mistral_v2", *first, assistant("b"), user("c")).text == "<s>[INST]a[/INST]b</s>[INST]c[/INST]"


def test_version_2_takes_one_result_at_a_time() -> None:
    parallel = [user("a"), assistant(None, call("1"), call("2")), result("1"), result("2")]
    with pytest.raises(TemplateError, match="one call at a time"):
        render("mistral_v2", *parallel)
    assert render("mistral_v2", *parallel, user("b")).text == "<s>[INST]a[/INST][INST]b[/INST]"


def test_version_2_needs_no_ids() -> None:
    messages = [user("a"), assistant(None, call("", name="f")), result(None)]
    assert render("mistral_v2", *messages).text.endswith('[{"name": "f", "content": "9:00"}][/TOOL_RESULTS]')


@pytest.mark.parametrize("name", WITH_IDS)
@pytest.mark.parametrize("id", ["abcDEF123", "call_1", "", "9"])
def test_ids_become_nine_letters_and_digits(name: str, id: str) -> None:
    messages = [user("a"), assistant(None, call(id)), result(id)]
    if not id:
        with pytest.raises(UnsupportedInput, match="message 1"):
            render(name, *messages)
        return
    written = re.findall(
        r'(?:"id": "|"call_id": "|\[TOOL_RESULTS\])([a-zA-Z0-9]{9})["\[]', render(name, *messages).text
    )
    assert len(written) == 2
    assert len(set(written)) == 1
    assert (written[0] == id) == bool(re.fullmatch("[a-zA-Z0-9]{9}", id))


def ids_of(*ids: str) -> list[str]:
    """The ids of parallel calls as they are written."""
    prompt = render("mistral_v3", user("a"), assistant(None, *map(call, ids)), *map(result, ids))
    return re.findall(r'"id": "(.*?)"', prompt.text)


def test_ids_with_one_beginning_stay_apart() -> None:
    assert len(set(ids_of("chatcmpl-tool-1", "chatcmpl-tool-2", "chatcmpl-"))) == 3


def test_an_id_is_the_same_in_a_longer_conversation() -> None:
    assert ids_of("call_0", "call_1")[0] == ids_of("call_0")[0]


def test_what_stands_for_an_id_gives_way_to_a_valid_one() -> None:
    (stand_in,) = ids_of("call_0")
    both = ids_of("call_0", stand_in)
    assert both[1] == stand_in
    assert both[0] != stand_in


@settings(max_examples=50)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True))
def test_different_ids_never_meet(ids: list[str]) -> None:
    written = ids_of(*ids)
    assert len(set(written)) == len(ids)
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", id) for id in written)


@pytest.mark.parametrize("name", WITH_IDS)
def test_results_keep_their_order_and_their_calls(name: str) -> None:
    text = render(name, user("a"), assistant(None, call("1"), call("2")), result("2", "two"), result("1", "one")).text
    first, second = re.findall(r'"id": "(.*?)"', text)
    results = text[text.index("</s>") :]
    assert results.index(second) < results.index(first)
    assert results.index("two") < results.index("one")


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([user("a"), result("1")], "message 1 "),
        ([user("a"), assistant(None, call("1")), result("2")], "message 2 .*'2'"),
        ([user("a"), assistant(None, call("1")), result("1"), result("1")], "message 3 "),
        ([user("a"), assistant(None, call("1")), user("b")], "before message 2 "),
        ([user("a"), assistant(None, call("1"), call("2")), result("1")], "1 of the calls before message 3 "),
    ],
)
def test_calls_and_results_belong_together(name: str, messages: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        render(name, *messages)


@pytest.mark.parametrize("name", WITH_IDS)
def test_two_calls_of_an_answer_need_two_ids(name: str) -> None:
    with pytest.raises(UnsupportedInput, match="message 1"):
        render(name, user("a"), assistant(None, call("1"), call("1")), result("1"), result("1"))


def test_a_call_whose_results_a_merged_system_text_follows_still_needs_them() -> None:
    messages = [user("a"), assistant(None, call("1")), system("b")]
    with pytest.raises(TemplateError, match="1 of the calls"):
        render("mistral_v3", *messages, merge_system=True)


@pytest.mark.parametrize("name", ["mistral", "mixtral"])
def test_version_1_has_no_place_for_tools(name: str) -> None:
    assert not families.get(name).renders_tools
    with pytest.raises(UnsupportedInput, match="Message 1"):
        render(name, user("a"), assistant(None, call("1")), result("1"))
    with pytest.raises(UnsupportedRole, match="message at index 1"):
        render(name, user("a"), result("1"))


@pytest.mark.parametrize("name", WITH_TOOLS)
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ({**TOOL, "name": "the time"}, "'the time'"),
        ({**TOOL, "name": "x" * 65}, "function names"),
        ({**TOOL, "parameters": {"type": "strin"}}, "now are not: 'strin'"),
        ({**TOOL, "parameters": {"default": {1}}}, "parameters of the tool now .*JSON"),
    ],
)
def test_tools_that_the_format_does_not_take_are_refused(name: str, tool: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedInput, match=reason):
        render(name, user("a"), tools=[tool])


def test_tools_without_a_user_message_are_not_dropped() -> None:
    with pytest.raises(TemplateError, match="tools"):
        render("mistral_v7", system("a"), tools=[TOOL])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"a" :1.50,"b":"\\u4f60"}', '{"a": 1.5, "b": "你"}'),
        ("", "{}"),
        ("{'a': 1}", "\"{'a': 1}\""),
        ('say "hi"\n', '"say \\"hi\\"\\n"'),
        ("9" * 5000, f'"{"9" * 5000}"'),
        ("[" * 50_000, f'"{"[" * 50_000}"'),
        ('"\\ud83d"', '"\\"\\\\ud83d\\""'),
    ],
)
def test_json_is_written_anew_and_other_text_as_a_string(text: str, written: str) -> None:
    messages = [user("a"), assistant(None, call("123456789", text)), result("123456789", text)]
    prompt = render("mistral_v3", *messages).text
    assert f'[TOOL_CALLS][{{"name": "now", "arguments": {written}, "id": "123456789"}}]</s>' in prompt
    assert f'[TOOL_RESULTS]{{"content": {written}, "call_id": "123456789"}}[/TOOL_RESULTS]' in prompt


def test_version_7_writes_results_as_they_are() -> None:
    messages = [user("a"), assistant("I look.", call("123456789")), result("123456789", '{"a" :1}')]
    assert render("mistral_v7", *messages).text == (
        '<s>[INST]a[/INST]I look.[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "123456789"}]</s>'
        '[TOOL_RESULTS]123456789[TOOL_CONTENT]{"a" :1}[/TOOL_RESULTS]'
    )


_PIECES = (
    *("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]"),
    *("[TOOL_RESULTS]", "[TOOL_CONTENT]", "[/TOOL_RESULTS]", "[/IN", "ST]", "<", "s>", " ", "\n", "a", "杭州", '"'),
)
_TEXTS = st.lists(st.lists(st.sampled_from(_PIECES), max_size=6).map("".join), min_size=9, max_size=9)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=50)
@given(texts=_TEXTS)
def test_content_changes_no_mark(name: str, texts: list[str]) -> None:
    def marks(texts: list[str]) -> list[str]:
        first, second, third, past, last, id, arguments, content, described = texts
        messages = [system(first), user(second), assistant(f"x{past}"), user(third + last)]
        if name in WITH_TOOLS:
            messages += [assistant(None, call(f"x{id}", arguments)), result(f"x{id}", content)]
        tool = {**TOOL, "description": described, "parameters": {"description": described}}
        parts = render(name, *messages, tools=[tool]).parts
        return [part.text for part in parts if isinstance(part, Markup)]

    assert marks(texts) == marks(["text"] * 9)


@pytest.mark.parametrize("name", NAMES)
def test_a_long_conversation_grows_evenly(name: str) -> None:
    turns = [user("question"), assistant("answer")]
    if name in WITH_TOOLS:
        turns += [user("time?"), assistant(None, call("call_0")), result("call_0"), assistant("nine")]
    sizes = [len(render(name, *turns * count, user("last")).text) for count in (1, 2, 500)]
    assert sizes[2] == sizes[0] + 499 * (sizes[1] - sizes[0])


@pytest.mark.parametrize(
    ("expected", "config"),
    [
        ("mistral", {"model_type": "mistral", "_name_or_path": "mistralai/Mistral-7B-Instruct-v0.2"}),
        ("mistral", {"model_type": "mistral", "vocab_size": 32000}),
        ("mixtral", {"model_type": "mixtral", "vocab_size": 32000}),
        ("mistral_v3", {"model_type": "mixtral", "vocab_size": 32768, "_name_or_path": "Mixtral-8x22B-Instruct-v0.1"}),
        (
            "mistral-nemo",
            {"model_type": "mistral", "vocab_size": 131072, "_name_or_path": "Mistral-Nemo-2407"},
        ),
        ("mistral_v7", {"model_type": "mistral", "vocab_size": 32768, "_name_or_path": "Mistral-Large-Instruct-2411"}),
    ],
)
def test_models_get_their_version(expected: str, config: dict[str, Any]) -> None:
    choice = families.resolve(None, type("Config", (), config)())
    assert choice.family.name == expected
    assert choice.rule == ("dedicated" if "v0.2" in config.get("_name_or_path", "") else "model_type")
