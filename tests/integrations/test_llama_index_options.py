"""The keyword arguments of one call."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.tools import FunctionTool

from chatlocal.engine.constraints import Limits, json_schema
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
        {"tools": [], "tool_required": False, "allow_parallel_tool_calls": True},
        {"extra_headers": {"anthropic-beta": "prompt-caching-2024-07-31"}},
    ],
)
def test_what_the_core_sends_to_every_model_is_taken(given: dict[str, Any]) -> None:
    assert read_options({}, given) == read_options({}, {})


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


ADD = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer", "default": 0}},
        "required": ["a"],
    },
}


@pytest.mark.parametrize("tool", [FunctionTool.from_defaults(add), ADD, {"type": "function", "function": ADD}])
def test_tools_of_the_core_and_in_openai_shape(tool: Any) -> None:
    (read,) = read_options({}, {"tools": [tool]}).tools
    assert (read.name, read.parameters) == ("add", ADD["parameters"])


def test_a_tool_keeps_its_name_and_its_whole_description() -> None:
    """The core's own conversion puts `get_pi_` for `get(pi)` and refuses more than 1024 characters."""
    tool = FunctionTool.from_defaults(add, name="get(pi)", description="Long. " * 300)
    (read,) = read_options({}, {"tools": [tool]}).tools
    assert (read.name, read.description) == ("get(pi)", "Long. " * 300)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "Add two numbers."),
        ("Adds.\nadd(1, 2)", "Adds.\nadd(1, 2)"),
        ("add(a, b)", "add(a, b)"),
        ("add(a, b) adds\nnumbers", "add(a, b) adds\nnumbers"),
    ],
)
def test_a_description_is_told_without_the_signature_of_the_core(given: str | None, told: str) -> None:
    tool = FunctionTool.from_defaults(add, description=given)
    assert given is not None or tool.metadata.description.startswith("add(a: ")
    assert read_options({}, {"tools": [tool]}).tools[0].description == told


FORCED = {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, "auto"),
        ({"tool_required": False, "tool_choice": "none"}, "none"),
        ({"tool_required": True}, "required"),
        ({"tool_required": True, "tool_choice": "auto"}, "required"),
        ({"tool_required": True, "tool_choice": "add"}, "add"),
        ({"tool_required": True, "tool_choice": FORCED}, FORCED),
        ({"tool_required": False, "tool_choice": "required"}, "required"),
    ],
)
def test_two_ways_to_demand_a_call(given: dict[str, Any], choice: Any) -> None:
    assert read_options({}, {"tools": [ADD], **given}).tool_choice == choice


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tool_choice": "any"}, "there are no tools"),
        ({"tool_required": True}, "there are no tools"),
        ({"tool_choice": {"name": "add"}}, "asks for 'add' and the tools are none"),
        ({"tools": [ADD], "tool_choice": "sub"}, "asks for 'sub' and the tools are add"),
        ({"tools": [ADD], "tool_choice": "none", "tool_required": True}, "forbids one"),
        ({"tools": [ADD, ADD]}, "Two tools"),
        ({"tools": ADD}, "Tools come as a list"),
        ({"tools": [add]}, "A tool needs a name"),
    ],
)
def test_what_tools_cannot_fulfil_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedInput, match=message):
        read_options({}, given)


@pytest.mark.parametrize(
    ("given", "parallel"),
    [
        ({}, None),
        ({"allow_parallel_tool_calls": True}, None),
        ({"allow_parallel_tool_calls": False}, False),
        ({"parallel_tool_calls": True}, True),
        ({"parallel_tool_calls": False, "allow_parallel_tool_calls": True}, False),
        ({"parallel_tool_calls": True, "allow_parallel_tool_calls": False}, True),
    ],
)
def test_a_permission_and_a_wish_for_several_calls(given: dict[str, Any], parallel: bool | None) -> None:
    assert read_options({}, given).parallel is parallel


def test_a_schema_is_not_asked_for_where_a_call_is_demanded() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "Dog", "schema": SCHEMA}}
    assert read_options({}, {"response_format": form, "tools": [ADD]}).schema == SCHEMA
    demanded = read_options({}, {"response_format": form, "tools": [ADD], "tool_choice": "required"})
    assert demanded.schema is None


@pytest.mark.parametrize("endpoint", ["complete", "stream_complete"])
@pytest.mark.parametrize("formatted", [False, True])
def test_a_completion_takes_no_tools(endpoint: str, formatted: bool) -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    with pytest.raises(UnsupportedInput, match="use chat"):
        getattr(llm, endpoint)("Hello", formatted=formatted, tools=[ADD])
    assert backend_of(llm.engine).requests == []


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
    assert request.constraint_spec == json_schema(SCHEMA, limits=Limits())
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
