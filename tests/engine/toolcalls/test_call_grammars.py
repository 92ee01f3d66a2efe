"""The grammar that each format has beside its reading: what it writes is read back as calls that fit their schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from tokenizers import AddedToken

from chatlocal.engine import constraints, toolcalls
from chatlocal.engine.constraints.vocabulary import read_vocabulary
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema
from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.call_grammar import CallGrammar
from tests.engine.constraints.walking import spelled, walk
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
NODE = {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}}


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
    assert demanded(format, [Tool("f", "", schema)]).left_to_validation == ('format "email" at /properties/a',)


def test_optional_arguments_of_python_calls_keep_their_commas() -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    constraint = demanded("pythonic", [Tool("f", "", {"type": "object", "properties": properties, "required": ["b"]})])
    texts = ["[f(b=1)]", "[f(a=1, b=2)]", "[f(b=1, c=2)]", "[f(a=1, b=2, c=3)]"]
    assert all(constraint.accepts(text) for text in texts)
    assert not any(
        constraint.accepts(text) for text in ("[f(a=1)]", "[f(, b=1)]", "[f(b=1, )]", "[f(b=1, a=2)]", "[f()]")
    )


def reads(format: str, schema: Any, value: Any, definitions: Any = None) -> bool:
    """Whether the value of an argument, as the format writes it, is in the grammar for its schema."""
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"], **(definitions or {})}
    text = written(format, call("f", a=value)).replace("True", "true")
    return bool(demanded(format, [Tool("f", "", parameters)]).accepts(text))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"allOf": [{"type": "integer", "minimum": 3}]}, 3, 1),
        ({"type": ["integer", "boolean"]}, 7, 2.5),
        ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "boolean"}]}, 5, 6),
        ({"type": "string", "enum": ["x", 1]}, "x", "1"),
        ({"enum": ["a", "b"], "not": {"const": "b"}}, "a", "b"),
        ({"type": "array", "items": {"type": "integer"}}, [1], ["x"]),
        ({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[ab]+$"}, "ab", "a"),
        ({"type": "string", "pattern": "^\\d{2}$"}, "12", "\u0661\u0662"),
        ({"type": "string", "format": "date"}, "2024-02-29", "\u0662024-02-29"),
        ({"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}, {"b": 1}, {"b": "x"}),
    ],
)
def test_values_are_held_to_their_schemas(format: str, schema: Any, good: Any, bad: Any) -> None:
    assert reads(format, schema, good)
    assert not reads(format, schema, bad)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("schema", "definitions"),
    [
        (
            {"$ref": "#/$defs/Node"},
            {"$defs": {"Node": {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}}}},
        ),
        ({"type": "array", "items": {"$ref": "#/properties/b"}}, None),
    ],
)
def test_references_lead_where_they_lead_in_the_tool(format: str, schema: Any, definitions: Any) -> None:
    properties = {"a": schema, "b": {"type": "integer"}}
    tool = Tool("f", "", {"type": "object", "properties": properties, "required": ["a"], **(definitions or {})})
    value = {"n": {"n": {}}} if definitions else [1, 2]
    assert demanded(format, [tool]).accepts(written(format, call("f", a=value)))
    assert not demanded(format, [tool]).accepts(written(format, call("f", a=["x"])))


@pytest.mark.parametrize("format", ONE_BY_ONE)
def test_parameters_behind_a_reference(format: str) -> None:
    """As Pydantic writes a model that refers to itself."""
    node = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = Tool("f", "", {"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert demanded(format, [tool]).accepts(written(format, call("f", n=1)))


@pytest.mark.parametrize("format", ONE_BY_ONE)
@pytest.mark.parametrize(
    "more",
    [
        {"required": ["zz"]},
        {"dependentRequired": {"a": ["b"]}},
        {"maxProperties": 1},
        {"const": {"a": 1}},
        {"propertyNames": {"maxLength": 1}},
        {"properties": {"a": {"$ref": "#/$defs/none"}}},
        {"properties": {"a": {"enum": "ab"}}},
        {"properties": []},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_cannot_be_enforced_one_by_one_is_refused(format: str, more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchema):
        demanded(format, [Tool("f", "", {"type": "object", "properties": {"a": {"type": "integer"}}, **more})])


@pytest.mark.parametrize("format", ["glm4.5", "qwen3_coder"])
@pytest.mark.parametrize("schema", [{"minimum": 3}, {"pattern": "^a+$"}, {"not": {"type": "string"}}])
def test_what_a_plain_text_cannot_say_is_refused(format: str, schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchema, match="plain text"):
        demanded(format, [Tool("f", "", {"type": "object", "properties": {"a": schema}})])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ['x"y', "a\\b", "a\nb", "f(", "<x>", "</tool_call>", "{", "a b", "[ARGS]", "`f`"])
def test_a_name_is_refused_or_read_back(format: str, name: str) -> None:
    tool = Tool(name, "", {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
    for vocabulary in (PLAIN, MARKED):
        refusal = None
        try:
            toolcalls.get(format).named(tool)
            constraint = demanded(format, [tool], vocabulary)
        except UnsupportedInput as error:
            refusal = str(error)
        if refusal is None:
            (read,) = toolcalls.get(format).parse(walk(constraint, vocabulary, 0), [tool]).calls[:1]
            assert read.name == name
        else:
            assert "plain name" in refusal


@pytest.mark.parametrize("vocabulary", [PLAIN, MARKED], ids=["spelled", "tokens"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_shortest_call_is_known(format: str, vocabulary: Any) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tools = [Tool("a_very_long_name_of_a_tool", "", parameters), Tool("f", "", parameters)]
    shortest = demanded(format, tools, vocabulary).shortest
    assert shortest is not None
    text = b"".join(spelled(vocabulary)[id] for id in shortest).decode()
    (read,) = toolcalls.get(format).parse(text, tools).calls
    assert json.loads(read.arguments) == {"a": ""}
    assert read.name == "f"
