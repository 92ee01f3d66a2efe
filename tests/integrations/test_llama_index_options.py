"""The keyword arguments of one call."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine.constraints import json_schema
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.integrations.llama_index import LocalLLM
from chatlocal.integrations.llama_index_options import read_options
from tests.integrations.llama_index_calls import hello
from tests.scripted import backend_of, scripted_engine

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def test_the_call_wins_over_the_object_and_none_is_not_given() -> None:
    options = read_options(
        {"temperature": 0.5, "top_k": 3, "stop": ["a"], "timeout": 9.0}, {"temperature": 0, "top_k": None}
    )
    assert (options.sampling.temperature, options.sampling.top_k, options.sampling.stop) == (0, 3, ("a",))
    assert options.timeout == 9.0
    assert read_options({"timeout": 9.0}, {"timeout": 1}).timeout == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": 3}, 3),
        ({"logprobs": True, "top_logprobs": 2}, 2),
    ],
)
def test_logprobs(given: dict[str, Any], expected: int | None) -> None:
    assert read_options({}, given).sampling.logprobs == expected


def test_top_logprobs_alone() -> None:
    with pytest.raises(UnsupportedInput, match="logprobs=True"):
        read_options({}, {"top_logprobs": 2})


@pytest.mark.parametrize(
    ("name", "near"), [("temprature", "temperature"), ("max_token", "max_tokens"), ("stops", "stop"), ("zzz", "seed")]
)
@pytest.mark.parametrize("endpoint", ["chat", "stream_complete"])
def test_unknown_arguments_name_the_near_ones(name: str, near: str, endpoint: str) -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    with pytest.raises(UnsupportedInput, match=f"'{name}'.*{near}"):
        getattr(llm, endpoint)(hello(endpoint), **{name: 1})
    assert backend_of(llm.engine).requests == []


def test_two_names_for_one_limit() -> None:
    assert read_options({"max_tokens": 5}, {"max_new_tokens": 3}).sampling.max_tokens == 3
    with pytest.raises(UnsupportedInput, match="one of them"):
        read_options({}, {"max_new_tokens": 3, "max_tokens": 4})


@pytest.mark.parametrize(
    "given",
    [
        {"tools": None, "tool_choice": None},
        {"tools": [], "tool_choice": "auto"},
        {"tool_required": False, "allow_parallel_tool_calls": True, "parallel_tool_calls": False},
        {"extra_headers": {"anthropic-beta": "prompt-caching-2024-07-31"}},
    ],
)
def test_what_the_core_sends_to_every_model_is_taken(given: dict[str, Any]) -> None:
    assert read_options({}, given) == read_options({}, {})


@pytest.mark.parametrize(
    "given",
    [{"tools": [{"name": "add"}]}, {"tool_choice": "any"}, {"tool_choice": {"name": "add"}}, {"tool_required": True}],
)
def test_tools_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedInput, match="tools"):
        read_options({}, given)


def test_response_format() -> None:
    wanted = read_options(
        {}, {"response_format": {"type": "json_schema", "json_schema": {"name": "Dog", "schema": SCHEMA}}}
    )
    assert (wanted.schema, wanted.spec) == (SCHEMA, json_schema(SCHEMA))
    anything = read_options({}, {"response_format": {"type": "json_object"}})
    assert (anything.schema, anything.spec) == (None, json_schema({"type": "object"}))
    text = read_options({}, {"response_format": {"type": "text"}})
    assert (text.schema, text.spec) == (None, None)


@pytest.mark.parametrize(
    "form", [{"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}, "x", 3]
)
def test_a_wrong_response_format(form: Any) -> None:
    with pytest.raises(UnsupportedInput, match="response_format must be"):
        read_options({}, {"response_format": form})


def test_a_schema_reaches_prompt_and_backend() -> None:
    llm = LocalLLM(engine=scripted_engine('{"name": "Rex"}'))
    form = {"type": "json_schema", "json_schema": {"name": "Dog", "schema": SCHEMA}}
    assert llm.complete("Hello", response_format=form).text == '{"name": "Rex"}'
    (request,) = backend_of(llm.engine).requests
    assert request.constraint_spec == json_schema(SCHEMA)
    assert "Answer as a JSON object with: name (text)" in llm.engine.tokenizer.decode(request.prompt_ids)


def test_a_schema_reaches_a_prompt_that_the_user_writes() -> None:
    seen: list[str] = []

    def write(messages: Any) -> str:
        seen.append(" | ".join(f"{message.role.value}: {message.content}" for message in messages))
        return seen[-1]

    llm = LocalLLM(engine=scripted_engine('{"name": "Rex"}'), messages_to_prompt=write)
    llm.complete("Hello", response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    assert "Answer as a JSON object with: name (text)" in seen[0]
    assert "user: Hello" in seen[0]
