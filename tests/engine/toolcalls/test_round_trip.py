"""Calls with any arguments, written by every format and read back."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatlocal.engine import toolcalls
from chatlocal.engine.messages import ToolCall
from tests.engine.toolcalls.answers import LOSSLESS, MARKS

TAGGED = ("qwen3_coder", "glm4.5")
NAMES = ("get_weather", "f", "ns.tool-2", "查询")

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**400),
    st.floats(allow_nan=False, allow_infinity=False),
)
# Marks and what quotes and escapes are made of, in texts of any characters.
_texts = st.one_of(
    st.text(max_size=12),
    st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=4).map("".join),
    st.sampled_from(["3", "true", "null", "[1]", '{"a": 1}', '"quoted"', "\\u003c", "\ud800", " ", "\n\n", "1e999"]),
)
_values = st.recursive(
    _scalars | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_texts | st.sampled_from(["city", "n", "if", "名"]), _values, max_size=4)
_calls = st.lists(st.tuples(st.sampled_from(NAMES), _objects), min_size=1, max_size=3)
_settings = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    properties = {key: {"type": _type(value)} for key, value in arguments.items()}
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


def _read(format: str, written: str, tools: Any) -> list[tuple[str, Any]]:
    content, calls, invalid = toolcalls.get(format).parse(written, tools)
    assert (content, invalid) == ("", [])
    return [(call.name, json.loads(call.arguments)) for call in calls]


def _call(name: str, arguments: dict[str, Any], id: str = "") -> ToolCall:
    return ToolCall(id, name, json.dumps(arguments))


@pytest.mark.parametrize("format", LOSSLESS)
def test_with_the_schemas_of_the_parameters(format: str) -> None:
    @_settings
    @given(_calls)
    def check(called: list[tuple[str, dict[str, Any]]]) -> None:
        unique = [(f"{name}{index}", arguments) for index, (name, arguments) in enumerate(called)]
        written = toolcalls.get(format).dump([_call(name, arguments) for name, arguments in unique])
        assert _read(format, written, [_tool(name, arguments) for name, arguments in unique]) == unique

    check()


@pytest.mark.parametrize("format", [name for name in LOSSLESS if name not in TAGGED])
def test_with_the_names_alone(format: str) -> None:
    @_settings
    @given(_calls)
    def check(called: list[tuple[str, dict[str, Any]]]) -> None:
        written = toolcalls.get(format).dump([_call(name, arguments) for name, arguments in called])
        assert _read(format, written, NAMES) == called

    check()


@pytest.mark.parametrize("format", TAGGED)
def test_without_schemas_all_but_texts_that_look_like_json(format: str) -> None:
    """A text in tags that says 3 is a number where no schema says otherwise."""

    @_settings
    @given(_calls)
    def check(called: list[tuple[str, dict[str, Any]]]) -> None:
        plain = [
            (
                name,
                {key: value for key, value in arguments.items() if not (isinstance(value, str) and _like_json(value))},
            )
            for name, arguments in called
        ]
        written = toolcalls.get(format).dump([_call(name, arguments) for name, arguments in plain])
        assert _read(format, written, NAMES) == plain

    check()


def _like_json(text: str) -> bool:
    """Whether a text may read as JSON of another type, perhaps after repairs."""
    try:
        return not isinstance(json.loads(text.strip()), str)
    except ValueError:
        return text.strip()[:1] in ("[", "{")


@given(st.lists(st.text(alphabet="abcXYZ019", min_size=9, max_size=9), min_size=1, max_size=4, unique=True))
def test_ids_come_back_where_the_format_writes_them(ids: list[str]) -> None:
    calls = [_call("f", {"a": 1}, id) for id in ids]
    read = toolcalls.get("mistral").parse(toolcalls.get("mistral").dump(calls)).calls
    assert [call.id for call in read] == ids


@pytest.mark.parametrize("format", LOSSLESS)
def test_numbers_beyond_python_floats(format: str) -> None:
    written = toolcalls.get(format).dump([ToolCall("", "f", '{"a": 1e999, "b": [-1e999, "Infinity"]}')])
    tool = {"name": "f", "parameters": {"properties": {"a": {"type": "number"}, "b": {"type": "array"}}}}
    [call] = toolcalls.get(format).parse(written, [tool]).calls
    assert "Infinity" not in call.arguments.replace('"Infinity"', "")
    assert json.loads(call.arguments) == {"a": float("inf"), "b": [float("-inf"), "Infinity"]}


@pytest.mark.parametrize(
    ("format", "tag", "escaped"),
    [
        ("qwen3_coder", "</parameter>", '"a \\u003c/parameter\\u003e"'),
        ("glm4.5", "<arg_key>", '"a \\u003carg_key\\u003e"'),
    ],
)
def test_strings_with_tags_are_escaped_and_only_those_are_unescaped(format: str, tag: str, escaped: str) -> None:
    strings = {
        "tag": f"a {tag}",
        "looks": escaped,
        "json": '"a"',
        "brackets": '"a \\u003cb\\u003e"',
        "text": "a < b > c",
    }
    written = toolcalls.get(format).dump([_call("f", strings)])
    assert _read(format, written, [_tool("f", strings)]) == [("f", strings)]
    assert _read(format, written, ["f"]) == [("f", strings)]
    assert written.count(escaped) == 1  # the string with the tag; the one that looks like it is escaped once more
    assert strings["brackets"] in written
    assert strings["text"] in written


@pytest.mark.parametrize("format", ["pythonic", "chatglm3"])
def test_python_calls_are_python(format: str) -> None:
    arguments = {"if": 1, "a b": None, "名": True, "x": [{"y": "\n'\""}], "": 1.5}
    written = toolcalls.get(format).dump([_call("tool_call", arguments)])
    code = written.partition("```python\n")[2].removesuffix("```") if format == "chatglm3" else written[1:-1]
    call = ast.parse(code.strip(), mode="eval").body
    assert isinstance(call, ast.Call)
    read: dict[str, Any] = {}
    for keyword in call.keywords:
        value = ast.literal_eval(keyword.value)
        read.update(value if keyword.arg is None else {keyword.arg: value})
    assert read == arguments
