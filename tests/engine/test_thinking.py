"""Models that think before they answer: the thinking has a limit of its own, and the answer comes whole behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from tokenizers import AddedToken

from chatlocal.engine import Engine, Sampling, constraints
from chatlocal.engine.errors import BudgetTooSmall, UnsupportedInput
from chatlocal.engine.events import Reply
from tests.scripted import ScriptedBackend, backend_of, spell
from tests.tiny import CHATML, tiny_model, tiny_tokenizer

HI = [{"role": "user", "content": "Hi"}]
FORM = {"type": "object", "properties": {"reasoning": {"type": "string"}, "n": {"type": "integer"}}}
FORM["required"] = [*FORM["properties"]]
SPEC = constraints.json_schema(FORM)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "parameters": CITY}
ASSISTANT = "assistant\n{% endif %}"
OPENED = CHATML.replace(ASSISTANT, "assistant\n<think>\n{% endif %}")
CLOSED = CHATML.replace(ASSISTANT, "assistant\n<think>\n\n</think>\n\n{% endif %}")
HERMES = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "Call with <tool_call></tool_call>.<|im_end|>\n{% endif %}"
)


def tokenizer_of(template: str, *, tokens: bool) -> Any:
    """The tiny tokenizer with a template, and with tokens for the marks or without."""
    tokenizer = tiny_tokenizer()
    if tokens:
        tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in ("<think>", "</think>")])
    tokenizer.chat_template = template
    tokenizer.model_max_length = 2048
    return tokenizer


def thinker(template: str = OPENED, *, tokens: bool = True, seed: int = 2) -> Engine:
    """A random model, which does not come to an end of its thinking by itself."""
    tokenizer = tokenizer_of(template, tokens=tokens)
    return Engine(tiny_model(seed, vocab_size=len(tokenizer), max_position_embeddings=2048), tokenizer)


def scripted(answer: str = "", template: str = OPENED, **options: Any) -> Engine:
    tokenizer = tokenizer_of(template, tokens=True)
    return Engine(None, tokenizer, backend=ScriptedBackend(spell(answer, tokenizer)), **options)


def limit_of(engine: Engine) -> int:
    limit: int = json.loads(backend_of(engine).requests[-1].constraint_spec.source)["limit"]
    return limit


def sampled(seed: int, **settings: Any) -> Sampling:
    return Sampling(temperature=1.0, seed=seed, logprobs=0, **settings)


def thought_of(reply: Reply) -> int:
    """How many ids came before the mark that closes the thinking, one that opens it apart."""
    texts = [report.data or report.token.encode() for report in reply.finish.logprobs or ()]
    whole = b"".join(texts)
    start, closing = whole.find(b"<think>"), whole.index(b"</think>")
    start = start + len(b"<think>") if 0 <= start < closing else 0
    places = [sum(map(len, texts[:count])) for count in range(len(texts))]
    return sum(start <= place < closing for place in places)


def checked(reply: Reply) -> Reply:
    """The answer is whole and in its form."""
    jsonschema.validate(json.loads(reply.message.text), FORM)
    assert reply.finish.reason == "stop"
    return reply


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "spelled"])
@pytest.mark.parametrize("limit", [0, 1, 25])
def test_thinking_ends_at_its_limit(tokens: bool, limit: int) -> None:
    with thinker(tokens=tokens) as engine:
        for seed in range(3):
            sampling = sampled(seed, max_tokens=150, max_thinking_tokens=limit)
            reply = checked(engine.generate(HI, spec=SPEC, sampling=sampling))
            assert thought_of(reply) == limit
            assert limit < 2 or reply.message.reasoning
            assert "think>" not in f"{reply.message.reasoning}{reply.message.text}"


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "spelled"])
@pytest.mark.parametrize("max_tokens", [60, 101, 400])
def test_half_is_left_to_an_answer_in_a_form(tokens: bool, max_tokens: int) -> None:
    with thinker(tokens=tokens) as engine:
        replies = (engine.generate(HI, spec=SPEC, sampling=sampled(seed, max_tokens=max_tokens)) for seed in range(3))
        thought = [thought_of(checked(reply)) for reply in replies]
        marks = 1 if tokens else len(spell("</think>"))
        assert max_tokens * 0.3 < max(thought) <= max_tokens / 2 - marks


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "spelled"])
def test_the_least_room_is_for_the_answer(tokens: bool) -> None:
    with thinker(tokens=tokens) as engine:
        least = None
        for max_tokens in range(10, 60, 3):
            try:
                sampling = sampled(0, max_tokens=max_tokens, max_thinking_tokens=1000)
                checked(engine.generate(HI, spec=SPEC, sampling=sampling))
                least = least or max_tokens
            except BudgetTooSmall:
                assert least is None
        assert least is not None


def test_an_answer_without_a_form_has_the_limit_that_is_given() -> None:
    with thinker() as engine:
        free = engine.generate(HI, sampling=Sampling(temperature=1.0, seed=1, max_tokens=50))
        assert free.finish.usage.reasoning == 50
        reply = engine.generate(HI, sampling=sampled(1, max_tokens=50, max_thinking_tokens=20))
        assert thought_of(reply) == 20
        assert reply.message.text


@pytest.mark.parametrize("limit", [0, 10])
def test_calls_come_behind_it(limit: int) -> None:
    with thinker(HERMES + OPENED) as engine:
        sampling = sampled(0, max_tokens=150, max_thinking_tokens=limit)
        reply = engine.generate(
            HI, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, sampling=sampling
        )
        (call,) = reply.message.tool_calls
        jsonschema.validate(json.loads(call.arguments), CITY)
        assert thought_of(reply) == limit


def test_a_thought_that_the_model_begins_itself_is_limited_too() -> None:
    tokenizer = tokenizer_of(CHATML, tokens=True)
    model = tiny_model(2, vocab_size=len(tokenizer), max_position_embeddings=2048)
    begin = tokenizer.convert_tokens_to_ids("<think>")
    with Engine(model, tokenizer) as engine:
        thought = []
        for seed in range(10):
            # At this temperature any token is about as likely as any other, so some of the answers begin with the mark.
            sampling = Sampling(temperature=90.0, seed=seed, max_tokens=60, max_thinking_tokens=3, logprobs=0)
            reply = engine.generate(HI, spec=SPEC, sampling=sampling)
            checked(reply)
            if (reply.finish.logprobs or ())[0].id == begin:
                thought.append(thought_of(reply))
        assert max(thought) == 3


@pytest.mark.parametrize("limit", [None, 0, 5])
def test_thinking_that_the_prompt_has_closed_has_no_limit_to_keep(limit: int | None) -> None:
    engine = scripted("ten", CLOSED)
    engine.generate(HI, sampling=Sampling(max_thinking_tokens=limit))
    assert backend_of(engine).requests[-1].constraint_spec is None
    engine.generate(HI, spec=SPEC, sampling=Sampling(max_thinking_tokens=limit))
    assert backend_of(engine).requests[-1].constraint_spec == replace(SPEC, limits=constraints.Limits())
    with thinker(CLOSED) as real:
        sampling = Sampling(temperature=1.0, seed=0, max_tokens=60, max_thinking_tokens=limit)
        assert checked(real.generate(HI, spec=SPEC, sampling=sampling)).finish.usage.reasoning == 0


def test_a_model_without_marks_does_not_think() -> None:
    tokenizer = tiny_tokenizer()
    engine = Engine(None, tokenizer, backend=ScriptedBackend(spell("ten")))
    assert engine.generate(HI, sampling=Sampling(max_thinking_tokens=0)).message.text == "ten"
    assert backend_of(engine).requests[-1].constraint_spec is None


def test_a_field_for_reasoning_is_part_of_the_answer() -> None:
    answer = json.dumps({"reasoning": "since <think>", "n": 1})
    reply = scripted(f"hm</think>\n\n{answer}").generate(HI, spec=SPEC)
    assert (reply.message.text, reply.message.reasoning) == (answer, "hm")


@pytest.mark.parametrize("tools", [(), (WEATHER,)])
def test_limits_of_one_call_after_another_need_few_constraints(tools: tuple[Any, ...]) -> None:
    """Near the end of the context each prompt leaves another room."""
    engine = scripted("ten", HERMES + OPENED)
    limits = set()
    for max_tokens in range(200, 1000):
        engine.generate(HI, tools=tools, spec=SPEC, sampling=Sampling(max_tokens=max_tokens))
        assert max_tokens * 0.45 < limit_of(engine) + 1 <= max_tokens / 2
        limits.add(limit_of(engine))
    assert len(limits) < 45


def test_the_limit_is_in_the_constraint_and_not_with_the_sampling() -> None:
    engine = scripted("ten")
    engine.generate(HI, sampling=Sampling(max_thinking_tokens=7))
    assert limit_of(engine) == 7
    assert backend_of(engine).requests[-1].sampling.max_thinking_tokens is None


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "7"])
def test_limits_are_counts(wrong: Any) -> None:
    with pytest.raises(UnsupportedInput, match="max_thinking_tokens"):
        Sampling(max_thinking_tokens=wrong)
