"""The grammar that each format has beside its reading: what it writes is read back as calls that fit their schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from tokenizers import AddedToken

from chatlocal.engine import constraints, toolcalls
from chatlocal.engine.constraints.vocabulary import read_vocabulary
from chatlocal.engine.errors import UnsupportedSchema
from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.call_grammar import CallGrammar
from tests.engine.constraints.walking import walk
from tests.tiny import tiny_tokenizer

FORMATS = toolcalls.names()
# Formats whose chat templates take one call in an answer, or whose models go on only when it has its result.
SINGLE = ("chatglm3", "glm4", "llama3", "qwen_react")
# Formats that write arguments one by one.
ONE_BY_ONE = ("chatglm3", "glm4.5", "pythonic", "qwen3_coder")
MARKS = sorted({mark for name in FORMATS for mark in toolcalls.get(name).marks})
WEATHER = Tool(
    "get_weather",
    "The weather of a city",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"enum": ["c", "</parameter>", None, 3]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
            "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
            "when": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": "^[A-Z]{2}(-[0-9]+)?$"},
            "flag": {"type": "boolean"},
            "place": {"$ref": "#/$defs/Place"},
        },
        "required": ["city", "flag"],
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"street": {"type": "string", "maxLength": 8}, "inside": {"$ref": "#/$defs/Place"}},
                "required": ["street"],
            }
        },
    },
)
NOW = Tool("now", "The time")
TOOLS = (WEATHER, NOW)


def tokenizer(*, marked: bool) -> Any:
    """The tiny tokenizer, with the marks of every format as control tokens or without any."""
    made = tiny_tokenizer()
    if marked:
        made.add_tokens([AddedToken(mark, special=mark.startswith("["), normalized=False) for mark in MARKS])
    return made


PLAIN, MARKED = tokenizer(marked=False), tokenizer(marked=True)


def demanded(format: str, tools: Any, vocabulary: Any = PLAIN, *, parallel: bool = True, opened: str = "") -> Any:
    names = frozenset(read_vocabulary(vocabulary).names)
    grammar = CallGrammar(parallel=parallel, opened=opened, marks=names)
    return constraints.compile(grammar.demanded(toolcalls.get(format).ways(grammar, tools)), vocabulary)


def offered(format: str, tools: Any, vocabulary: Any = PLAIN) -> Any:
    grammar = CallGrammar(parallel=True, marks=frozenset(read_vocabulary(vocabulary).names))
    openings = grammar.openings(toolcalls.get(format).ways(grammar, tools))
    return constraints.compile(constraints.free_text(*openings), vocabulary)


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("", name, json.dumps(arguments, ensure_ascii=False))


def written(format: str, *calls: ToolCall) -> str:
    """As the format writes it; a ReAct call with the thought that a demanded one has."""
    return toolcalls.get(format).dump(calls).replace("Thought: \n", "Thought: I look.\n")


@pytest.mark.parametrize("vocabulary", [PLAIN, MARKED], ids=["spelled", "tokens"])
@pytest.mark.parametrize("format", FORMATS)
def test_any_walk_is_calls_that_fit_their_schemas(format: str, vocabulary: Any) -> None:
    constraint = demanded(format, TOOLS, vocabulary)
    called = set()
    for seed in range(6):
        text = walk(constraint, vocabulary, seed, steps=60, limit=6000)
        parsed = toolcalls.get(format).parse(text, TOOLS)
        assert (parsed.invalid, parsed.calls != []) == ([], True), text
        assert format == "qwen_react" or parsed.content == ""
        for each in parsed.calls:
            schema = {"get_weather": WEATHER, "now": NOW}[each.name].parameters
            jsonschema.validate(json.loads(each.arguments), schema)
            called.add(each.name)
    assert called == {"get_weather", "now"}


@pytest.mark.parametrize("format", FORMATS)
def test_what_the_format_writes_is_in_its_grammar(format: str) -> None:
    one = demanded(format, TOOLS)
    calls = (
        call("now"),
        call("get_weather", city="New\nYork </b>", flag=True),
        call("get_weather", city="", days=3, unit="c", note="a, b", when="2024-02-29", code="AB-12", flag=False),
        call("get_weather", city="x", flag=True, place={"street": "y", "inside": {"street": "z"}}),
    )
    for each in calls:
        assert one.accepts(written(format, each).replace("True", "true").replace("False", "false"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "wrong",
    [
        call("get_wether", city="x", flag=True),
        call("get_weather", city="x"),
        call("get_weather", city="x", flag=True, other=1),
        call("get_weather", city="x", days=15, flag=True),
        call("get_weather", city="x", days=3.5, flag=True),
        call("get_weather", city="x", unit="k", flag=True),
        call("get_weather", city="x", when="2023-02-29", flag=True),
        call("get_weather", city="x", code="ab-12", flag=True),
        call("get_weather", city="x", note="too long", flag=True),
        call("now", city="x"),
    ],
)
def test_what_does_not_fit_is_not_in_it(format: str, wrong: ToolCall) -> None:
    assert not demanded(format, TOOLS).accepts(written(format, wrong).replace("True", "true"))


@pytest.mark.parametrize("format", sorted(set(FORMATS) - set(SINGLE)))
def test_several_calls_only_where_they_may_be(format: str) -> None:
    several = written(format, call("now"), call("now"), call("now"))
    assert demanded(format, TOOLS).accepts(several)
    assert not demanded(format, TOOLS, parallel=False).accepts(several)
    assert demanded(format, TOOLS, parallel=False).accepts(written(format, call("now")))


@pytest.mark.parametrize("format", FORMATS)
def test_left_to_the_model_text_is_free_and_calls_are_not(format: str) -> None:
    free = offered(format, TOOLS)
    assert free.accepts("The weather is fine: {1} [2] <3> now.\n")
    good, bad = call("get_weather", city="x", flag=True), call("get_weather", city="x", flag=7)
    assert free.accepts(written(format, good).replace("True", "true"))
    assert not free.accepts(written(format, bad))


def test_a_thought_that_the_prompt_has_begun_goes_on() -> None:
    begun = demanded("qwen_react", [NOW], opened="Thought:")
    assert begun.accepts(" I look.\nAction: now\nAction Input: {}")
    assert not begun.accepts("Thought: I look.\nAction: now\nAction Input: {}")


def test_mistral_writes_names_where_the_vocabulary_has_the_mark() -> None:
    assert demanded("mistral", [NOW], PLAIN).accepts('[TOOL_CALLS] [{"name": "now", "arguments": {}}]')
    assert demanded("mistral", [NOW], MARKED).accepts("[TOOL_CALLS]now[ARGS]{}")


@pytest.mark.parametrize("format", FORMATS)
def test_names_that_need_care(format: str) -> None:
    tools = [Tool("ns.tool-2"), Tool("查询"), Tool("now"), Tool("now_utc")]
    for tool in tools:
        assert demanded(format, tools).accepts(written(format, call(tool.name)))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "parameters", [{}, {"properties": {"a": {"type": "integer"}}}, {"type": ["object", "null"], "properties": {}}]
)
def test_arguments_are_an_object_whatever_the_schema_says(format: str, parameters: dict[str, Any]) -> None:
    constraint = demanded(format, [Tool("f", "", parameters)])
    assert constraint.accepts(written(format, call("f")))
    parsed = toolcalls.get(format).parse(walk(constraint, PLAIN, 1))
    assert [isinstance(json.loads(each.arguments), dict) for each in parsed.calls][:1] == [True]


@pytest.mark.parametrize("format", ["hermes", "mistral", "qwen_react"])
def test_parameters_that_are_no_object_are_refused(format: str) -> None:
    with pytest.raises(UnsupportedSchema, match="the parameters of f are 'array'"):
        demanded(format, [Tool("f", "", {"type": "array"})])


@pytest.mark.parametrize("format", ONE_BY_ONE)
def test_arguments_that_cannot_be_put_one_by_one_are_refused_by_name(format: str) -> None:
    either = {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    with pytest.raises(UnsupportedSchema, match="anyOf"):
        demanded(format, [Tool("f", "", either)])


@pytest.mark.parametrize("format", ["glm4.5", "qwen3_coder"])
def test_what_a_plain_text_cannot_be_held_to_is_reported(format: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "email"}, "b": {"type": "string"}}}
    assert demanded(format, [Tool("f", "", schema)]).left_to_validation == ('format "email"',)


def test_optional_arguments_of_python_calls_keep_their_commas() -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    constraint = demanded("pythonic", [Tool("f", "", {"type": "object", "properties": properties, "required": ["b"]})])
    texts = ["[f(b=1)]", "[f(a=1, b=2)]", "[f(b=1, c=2)]", "[f(a=1, b=2, c=3)]"]
    assert all(constraint.accepts(text) for text in texts)
    assert not any(
        constraint.accepts(text) for text in ("[f(a=1)]", "[f(, b=1)]", "[f(b=1, )]", "[f(b=1, a=2)]", "[f()]")
    )
