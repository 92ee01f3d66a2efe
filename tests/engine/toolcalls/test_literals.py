"""JSON and Python literals as models write them, and values written as plain text."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlocal.engine.toolcalls.json_text import read_value
from chatlocal.engine.toolcalls.python_text import read_keywords, read_literal
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.typed_text import typed

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_JSON = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
_PYTHON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=10,
)


def _read(
    text: str, reader: Callable[[Source, Callable[[str], None]], Reading[Any]], whole: bool = True
) -> tuple[Any, str]:
    """What a reader returns and gives for a text that comes at once or a character at a time."""
    source = Source()
    pieces: list[str] = []
    reading = reader(source, pieces.append)
    try:
        for piece in [text] if whole else text:
            source.append(piece)
            next(reading)
        source.end()
        next(reading)
    except StopIteration as done:
        return done.value, "".join(pieces)
    raise AssertionError("the reader waits for more than the whole text")


def _json(source: Source, give: Callable[[str], None]) -> Reading[bool]:
    return read_value(source, ("<end>",), give)


@given(_JSON, st.sampled_from([None, 2]))
def test_json_goes_through_as_it_is(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=indent is None)
    assert _read(text, _json) == (True, text)
    assert _read(text, _json, whole=False) == (True, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a\nb\tc"', '"a\\nb\\tc"'),
        ('"C:\\dir\\u12 \\x41 it\\\'s"', '"C:\\\\dir\\\\u12 \\\\x41 it\'s"'),
        ('{"a": 1,}', '{"a": 1}'),
        ('{"a": [1, ], }', '{"a": [1]}'),
        ('{"a":\xa01}', '{"a": 1}'),
        ("[True, False, None]", "[true, false, null]"),
        ('["True", 1]', '["True", 1]'),
    ],
)
def test_json_is_put_right(text: str, expected: str) -> None:
    assert _read(text, _json) == (True, expected)
    assert _read(text, _json, whole=False) == (True, expected)


@pytest.mark.parametrize("text", ['{"a": 1', '"a', "[1", '{"a": 1<end>}', "]", "", "<end>"])
def test_json_that_does_not_end(text: str) -> None:
    assert _read(text, _json)[0] is False


def _as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return {key: _as_json(item) for key, item in value.items()} if isinstance(value, dict) else value


@settings(max_examples=200)
@given(_PYTHON)
def test_python_literals_are_read_as_python_reads_them(value: Any) -> None:
    whole, text = _read(repr(value), read_literal)
    assert whole
    assert json.loads(text) == _as_json(ast.literal_eval(repr(value)))
    assert _read(repr(value), read_literal, whole=False) == (whole, text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "'a' \"b\" '''c'''",
            "'''a'b''c\nd'''",
            '"""a"b"""',
            "''",
            '""""""',
            r"r'\d\'x'",
            r"u'\u00e9'",
            r"'\x41\101\0\a\v'",
        ),
        *("1_000", "0x1F", "0b11", "1.", ".5", "1e5", "1E-5", "-0.5", "+3", "0", "(1)", "(1,)", "()"),
        *("[1, 2,]", "{'a': 1,}", "(1, [2, (3,)])", "{}", "True", "None", r"'\U0001F600'", "'\\\n'"),
    ],
)
def test_spellings_of_python_literals(text: str) -> None:
    whole, read = _read(text, read_literal)
    assert whole
    assert json.loads(read) == _as_json(ast.literal_eval(text))
    assert _read(text, read_literal, whole=False) == (whole, read)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a\nb'", "a\nb"),
        (r"'C:\dir \u12 \xg'", r"C:\dir \u12 \xg"),
        ("true", True),
        ("null", None),
        (r"'\ud83d\ude00'", "😀"),
        ("1e999", float("inf")),
    ],
)
def test_python_literals_are_put_right(text: str, value: Any) -> None:
    whole, read = _read(text, read_literal)
    assert (whole, json.loads(read)) == (True, value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "b'a'",
            "f'a'",
            "{1}",
            "{1: 2}",
            "name",
            "nan",
            "inf",
            "1j",
            "f(1)",
            "-'a'",
            "'a",
            "[1",
            "[1 2]",
            "{'a' 1}",
            "...",
        ),
        "(" * 1000 + ")" * 1000,
    ],
)
def test_what_is_no_literal(text: str) -> None:
    assert _read(text, read_literal)[0] is False


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (")", {}),
        (" ) ", {}),
        ("a=1, b = 'x',\n c=[1])", {"a": 1, "b": "x", "c": [1]}),
        ("**{'a b': 1, 'c': 2}, d=3)", {"a b": 1, "c": 2, "d": 3}),
        ("a=1, **{}, b=2)", {"a": 1, "b": 2}),
        ("名=1)", {"名": 1}),
    ],
)
def test_named_arguments(text: str, arguments: dict[str, Any]) -> None:
    fault, read = _read(text, read_keywords)
    assert fault is None
    assert json.loads(read) == arguments
    assert _read(text, read_keywords, whole=False) == (fault, read)


@pytest.mark.parametrize(
    "text", ["", "1)", "a)", "a=)", "a=1", "a=1 b=2)", "a=b)", "a==1)", "1a=1)", "*[1])", "a=1;b=2)"]
)
def test_arguments_that_are_not_named_literals(text: str) -> None:
    fault, _ = _read(text, read_keywords)
    assert fault


_PARAMETERS = {
    "$defs": {"Colour": {"enum": ["red", "1"]}, "Point": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "text": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "tags": {"type": "array"},
        "colour": {"$ref": "#/$defs/Colour"},
        "point": {"allOf": [{"$ref": "#/$defs/Point"}]},
        "loop": {"$ref": "#/$defs/Loop"},
        "one": {"const": "1"},
        "free": {},
    },
    "additionalProperties": {"type": "string"},
}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "3", "3"),
        ("text", "null", "null"),
        ("text", '"quoted"', '"quoted"'),
        ("text", " a\n", " a\n"),
        ("maybe", "null", None),
        ("maybe", "None", "None"),
        ("maybe", "3", "3"),
        ("either", "3", 3),
        ("either", "3.5", "3.5"),
        ("either", "null", "null"),
        ("count", " 3\n", 3),
        ("count", "three", "three"),
        ("count", "12345678901234567890123", 12345678901234567890123),
        ("flag", "true", True),
        ("flag", "True", True),
        ("flag", "None", None),
        ("tags", "['a', 'b']", ["a", "b"]),
        ("tags", '["a", "b",]', ["a", "b"]),
        ("colour", "1", "1"),
        ("point", "{'x': 1}", {"x": 1}),
        ("one", "1", "1"),
        ("loop", "1", 1),
        ("free", "1", 1),
        ("free", "True", "True"),
        ("free", '"quoted"', '"quoted"'),
        ("free", "[1, 2", "[1, 2"),
        ("free", "1 2", "1 2"),
        ("free", "", ""),
        ("free", "NaN", "NaN"),
        ("other", "1", "1"),
    ],
)
def test_plain_text_is_read_by_the_schema(name: str, text: str, value: Any) -> None:
    assert json.loads(typed(text, _PARAMETERS, name)) == value


def test_without_a_schema_json_is_read() -> None:
    assert json.loads(typed("3", {}, "a")) == 3
    assert json.loads(typed("3", {"properties": {"a": {"type": "string", "nullable": True}}}, "a")) == "3"
    assert json.loads(typed("null", {"properties": {"a": {"type": "string", "nullable": True}}}, "a")) is None
