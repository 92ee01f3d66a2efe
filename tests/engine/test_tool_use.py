"""Tools in the engine: what the model is shown, what it may write, and what comes out as calls, thoughts and text."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from tokenizers import AddedToken

from chatlocal.engine import Engine, Sampling, constraints
from chatlocal.engine.errors import BudgetTooSmall, UnsupportedInput
from chatlocal.engine.events import (
    CallDelta,
    CallInvalid,
    CallStart,
    Event,
    Finish,
    Reasoning,
    Text,
    collect,
)
from tests.scripted import ScriptedBackend, backend_of, scripted_engine, spell
from tests.tiny import CHATML, tiny_model, tiny_tokenizer

HI = [{"role": "user", "content": "Hi"}]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": CITY}}
NOW = {"name": "now", "description": "The time"}
REACT = 'Thought: I look it up.\nAction: get_weather\nAction Input: {"city": "Rome"}'
# A ChatML template that knows tools as Qwen2.5's does.
HERMES = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "Call with <tool_call></tool_call>.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def engine_over(
    answer: str, *, added: tuple[AddedToken, ...] = (), template: str | None = None, **options: Any
) -> Engine:
    """A scripted engine whose tokenizer has more tokens, in which the answer is spelled."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(list(added))
    tokenizer.model_max_length = 2048
    if template and "{" in template:
        tokenizer.chat_template, template = template, None
    return Engine(None, tokenizer, backend=ScriptedBackend(spell(answer, tokenizer)), template=template, **options)


def tags(*names: str, special: bool = False) -> tuple[AddedToken, ...]:
    return tuple(AddedToken(name, special=special, normalized=False) for name in names)


def react(answer: str) -> Engine:
    return engine_over(answer, template="qwen")


def kinds(events: list[Event]) -> list[str]:
    return list(dict.fromkeys(type(event).__name__ for event in events))


def submitted(engine: Engine) -> Any:
    return backend_of(engine).requests[-1]


def test_a_thought_and_a_call_stream_apart() -> None:
    engine = react(REACT + "\nObservation: sunny\nThought: done")
    events = list(engine.stream(HI, tools=[WEATHER, NOW]))
    assert kinds(events) == ["Reasoning", "CallStart", "CallDelta", "Finish"]
    reply = collect(events)
    assert reply.message.reasoning == "I look it up."
    (call,) = reply.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Rome"})
    assert reply.finish.reason == "tool_calls"
    assert 0 < reply.finish.usage.reasoning < reply.finish.usage.completion
    assert backend_of(engine).closed == 1  # what the model invents behind its call is not waited for


def test_an_answer_without_a_call() -> None:
    reply = react("Thought: I now know.\nFinal Answer: It is ten.").generate(HI, tools=[WEATHER])
    assert (reply.message.text, reply.message.reasoning) == ("It is ten.", "I now know.")
    assert (reply.message.tool_calls, reply.finish.reason) == ((), "stop")


@pytest.mark.parametrize(
    "answer",
    ["It is ten o'clock in Rome.", "Final Answer: It is ten o'clock.", "Actions speak louder: so Action is it.\nAct!"],
)
def test_text_is_held_back_for_no_more_than_a_marker(answer: str) -> None:
    """Counted in tokens: what stands behind the label has gone out when one marker more has come."""
    engine = react(answer)
    tokenizer = engine.tokenizer
    marker = max(
        len(spell(f"\n{mark}", tokenizer)) for mark in ("**Final Answer**:**", "Action Input:", "Observation:")
    )
    visible = answer.removeprefix("Final Answer: ")
    given = came = ""
    ids = iter(spell(answer, tokenizer))
    behind = 0
    for event in engine.stream(HI, tools=[WEATHER]):
        if isinstance(event, Text):
            given += event.text
            while not came.endswith(given):
                came += tokenizer.decode([next(ids)])
            behind = max(
                behind, len(spell(came, tokenizer)) - len(spell(answer[: answer.find(visible)] + given, tokenizer))
            )
    assert given == visible
    assert behind <= marker


def test_what_a_call_may_be_follows_from_the_choice() -> None:
    engine = react("Final Answer: ten")
    for choice, kind in ((None, "free_text"), ("auto", "free_text"), ("required", "marked"), ("now", "marked")):
        engine.generate(HI, tools=[WEATHER, NOW], tool_choice=choice)
        assert submitted(engine).constraint_spec.kind == kind
    named = constraints.compile(submitted(engine).constraint_spec, engine.tokenizer)
    assert named.accepts("Thought: well\nAction: now\nAction Input: {}")
    assert not named.accepts('Thought: well\nAction: get_weather\nAction Input: {"city": "x"}')


def test_no_choice_shows_no_tools_and_reads_no_calls() -> None:
    engine = react(REACT)
    reply = engine.generate(HI, tools=[WEATHER], tool_choice="none")
    assert (reply.message.text, reply.message.tool_calls) == (REACT, ())
    assert submitted(engine).constraint_spec is None
    assert "get_weather" not in engine.tokenizer.decode(submitted(engine).prompt_ids)


def test_an_answer_in_a_form_beside_tools() -> None:
    engine = react('{"a": 1}')
    spec = constraints.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    assert engine.generate(HI, tools=[NOW], spec=spec).message.text == '{"a": 1}'
    allowed = constraints.compile(submitted(engine).constraint_spec, engine.tokenizer)
    assert allowed.accepts('{"a": 1}')
    assert allowed.accepts("Thought: well\nAction: now\nAction Input: {}")
    assert not allowed.accepts("ten")


def test_parallel_calls_have_their_own_index() -> None:
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
    calls = [call % city for city in "ab"]
    engine = engine_over("Both. " + "\n".join(calls), template=HERMES)
    events = list(engine.stream(HI, tools=[WEATHER]))
    starts = [event for event in events if isinstance(event, CallStart)]
    assert [start.index for start in starts] == [0, 1]
    assert len({start.id for start in starts}) == 2
    assert [call.arguments for call in collect(events).message.tool_calls] == ['{"city": "a"}', '{"city": "b"}']
    assert {event.index for event in events if isinstance(event, CallDelta)} == {0, 1}
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Both."
    several = constraints.compile(submitted(engine).constraint_spec, engine.tokenizer)
    assert several.accepts("\n".join(calls))
    engine.generate(HI, tools=[WEATHER], parallel_tool_calls=False)
    assert not constraints.compile(submitted(engine).constraint_spec, engine.tokenizer).accepts("\n".join(calls))


def test_marks_that_are_special_tokens_reach_the_reader_and_not_the_user() -> None:
    mark = tags("[TOOL_CALLS]", "[ARGS]", special=True)
    engine = engine_over('Well.[TOOL_CALLS]now[ARGS]{"a": 1}', added=mark, template="mistral_v3")
    reply = engine.generate(HI, tools=[{"name": "now", "parameters": {"type": "object"}}])
    assert reply.message.text == "Well."
    assert [(call.name, call.arguments) for call in reply.message.tool_calls] == [("now", '{"a": 1}')]


def test_a_call_that_is_cut_is_an_invalid_one_and_says_so() -> None:
    engine = react(REACT)
    reply = engine.generate(HI, tools=[WEATHER], sampling=Sampling(max_tokens=len(spell(REACT)) - 3))
    assert reply.finish.reason == "length"
    assert reply.message.tool_calls == ()
    (broken,) = reply.invalid_calls
    assert broken.name == "get_weather"
    assert broken.raw.startswith('{"city": "R')


def test_stops_end_the_text_and_no_call() -> None:
    engine = react(REACT)
    (call,) = engine.generate(HI, tools=[WEATHER], sampling=Sampling(stop=("Rome", "look"))).message.tool_calls
    assert call.arguments == '{"city": "Rome"}'
    two = Sampling(stop=(" two",))
    finish: Any = list(react("Final Answer: one two three").stream(HI, tools=[NOW], sampling=two))[-1]
    assert (finish.reason, finish.stop) == ("stop", " two")
    assert react("one two three").generate(HI, tools=[NOW], sampling=two).message.text == "one"


def test_thinking_is_kept_apart_without_tools_too() -> None:
    engine = engine_over("<think>\nwell: 1, 2\n</think>\n\nTwo.", added=tags("<think>", "</think>"))
    reply = engine.generate(HI)
    assert (reply.message.text, reply.message.reasoning) == ("Two.", "well: 1, 2")
    assert 0 < reply.finish.usage.reasoning < reply.finish.usage.completion


def test_models_that_do_not_think_may_write_of_it() -> None:
    assert engine_over("<think> is a tag.").generate(HI).message.text == "<think> is a tag."


def test_an_answer_in_a_form_comes_behind_the_thinking() -> None:
    engine = engine_over('<think>{ hm }</think>\n\n{"a": 1}', added=tags("<think>", "</think>"))
    events = list(engine.stream(HI, spec=constraints.json_schema({"type": "object"})))
    assert "".join(event.text for event in events if isinstance(event, Text)) == '{"a": 1}'
    assert "".join(event.text for event in events if isinstance(event, Reasoning)) == "{ hm }"
    assert submitted(engine).constraint_spec.kind == "thinking"


def test_a_thought_that_the_prompt_closed_is_not_begun_again() -> None:
    closed = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}")
    engine = engine_over('{"a": 1}', added=tags("<think>", "</think>"), template=closed)
    engine.generate(HI, spec=constraints.json_schema({"type": "object"}))
    assert submitted(engine).constraint_spec.kind == "json_schema"


def test_a_thought_that_the_prompt_opened_goes_on() -> None:
    opened = CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
    engine = engine_over("hm</think>ten", added=tags("<think>", "</think>"), template=opened)
    reply = engine.generate(HI)
    assert (reply.message.text, reply.message.reasoning) == ("ten", "hm")


def test_the_result_of_a_call_is_part_of_every_history() -> None:
    call = {"id": "call00001", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    history = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": "ten past ten"},
    ]
    for template in (None, "qwen", "mistral_v3", "llama3", "gemma3", HERMES):
        engine = engine_over("ten", template=template)
        engine.generate(history)
        assert "ten past ten" in engine.tokenizer.decode(submitted(engine).prompt_ids), template


@pytest.mark.parametrize(
    ("template", "tool_format"),
    [
        *((name, None) for name in (None, "qwen", "mistral_v3", "llama3.1", "chatglm3", "deepseek-v3.1", HERMES)),
        *((HERMES, name) for name in ("qwen3_coder", "pythonic", "glm4.5", "glm4")),
    ],
)
def test_a_demanded_call_is_well_formed_with_any_model(template: str | None, tool_format: str | None) -> None:
    """Random weights at temperature 1, which know no format at all."""
    tokenizer = tiny_tokenizer()
    if template == HERMES:
        tokenizer.chat_template, template = HERMES, None
    model = tiny_model(2, max_position_embeddings=2048)
    with Engine(model, tokenizer, template=template, tool_format=tool_format) as engine:
        for seed in range(3):
            sampling = Sampling(temperature=1.0, seed=seed, max_tokens=1000)
            reply = engine.generate(
                HI, tools=[WEATHER, NOW], tool_choice="required", parallel_tool_calls=False, sampling=sampling
            )
            assert reply.invalid_calls == ()
            (call,) = reply.message.tool_calls
            jsonschema.validate(
                json.loads(call.arguments), CITY if call.name == "get_weather" else {"maxProperties": 0}
            )
            assert reply.finish.reason == "tool_calls"


def test_the_format_is_described_and_can_be_set() -> None:
    assert engine_over("x", template="qwen").describe()["tool_format"].startswith("qwen_react: ")
    assert engine_over("x").describe()["tool_format"].startswith("prompted: ")
    assert engine_over("x", template=HERMES).describe()["tool_format"].startswith("hermes: ")
    set_by_user = engine_over("[now()]", template=HERMES, tool_format="pythonic")
    assert set_by_user.describe()["tool_format"].startswith("pythonic: ")
    assert [call.name for call in set_by_user.generate(HI, tools=[NOW]).message.tool_calls] == ["now"]
    unknown = CHATML.replace("{% for", "{% if tools %}{{ tools | tojson }}{% endif %}{% for", 1)
    assert engine_over("x", template=unknown).describe()["tool_format"].startswith("prompted: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [({"tool_format": "hermess"}, "hermes"), ({"tool_format": "hermes"}, "shows a model no tools")],
)
def test_formats_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedInput, match=said):
        engine_over("x", **options)


def test_ids_of_calls_are_new_in_every_answer() -> None:
    engine = react(REACT)
    ids = {engine.generate(HI, tools=[WEATHER]).message.tool_calls[0].id for _ in range(20)}
    assert len(ids) == 20
    assert all(len(id) == 9 and id.isalnum() for id in ids)


async def test_an_event_loop_gets_the_same() -> None:
    engine = react(REACT)
    reply = await engine.agenerate(HI, tools=[WEATHER])
    assert [call.name for call in reply.message.tool_calls] == ["get_weather"]


def test_broken_arguments_keep_their_text() -> None:
    engine = react("Thought: hm\nAction: get_weather\nAction Input: Rome, please")
    events = list(engine.stream(HI, tools=[WEATHER]))
    (invalid,) = (event for event in events if isinstance(event, CallInvalid))
    assert invalid.raw == "Rome, please"
    assert isinstance(events[-1], Finish)
    assert events[-1].reason == "stop"


def test_a_written_prompt_takes_no_tools() -> None:
    engine = scripted_engine("x")
    with pytest.raises(UnsupportedInput, match="written already"):
        engine.generate(engine.render(HI), tools=[NOW])


def test_a_call_that_was_decided_on_and_has_no_room_leaves_text() -> None:
    with Engine(tiny_model(2), tiny_tokenizer(), call_threshold=-1e9) as engine:
        called = engine.generate(HI, tools=[NOW], sampling=Sampling(max_tokens=40))
        assert [call.name for call in called.message.tool_calls] == ["now"]
        said = engine.generate(HI, tools=[NOW], sampling=Sampling(max_tokens=5))
        assert (said.message.tool_calls, said.finish.usage.completion) == ((), 5)
        with pytest.raises(BudgetTooSmall):
            engine.generate(HI, tools=[NOW], tool_choice="required", sampling=Sampling(max_tokens=5))


def test_worked_examples_are_left_out_where_they_fill_the_context() -> None:
    long = engine_over("x")
    short = Engine(None, tiny_tokenizer(), backend=ScriptedBackend(spell("x")))  # a context of 512
    counts = [engine.count_tokens(HI, [WEATHER]) for engine in (long, short)]
    assert counts[1] < 256 < counts[0]
    assert all("get_weather" in engine.render(HI, [WEATHER]).text for engine in (long, short))
