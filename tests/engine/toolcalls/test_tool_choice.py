"""What a request says about its tools, in every API's way to say it."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Tool
from chatlocal.engine.toolcalls.tool_choice import read_tool_choice

FOO, BAR = Tool("foo"), Tool("bar")


@pytest.mark.parametrize(
    ("choice", "mode", "tools"),
    [
        (None, "auto", (FOO, BAR)),
        ("auto", "auto", (FOO, BAR)),
        ({"type": "auto"}, "auto", (FOO, BAR)),
        ("none", "none", ()),
        (False, "none", ()),
        ({"type": "none"}, "none", ()),
        ("required", "required", (FOO, BAR)),
        ("any", "required", (FOO, BAR)),
        (True, "required", (FOO, BAR)),
        ({"type": "any"}, "required", (FOO, BAR)),
        ("bar", "required", (BAR,)),
        ({"type": "function", "function": {"name": "bar"}}, "required", (BAR,)),
        ({"type": "function", "name": "bar"}, "required", (BAR,)),
        ({"type": "tool", "name": "bar"}, "required", (BAR,)),
        ({"name": "bar"}, "required", (BAR,)),
    ],
)
def test_ways_to_say_it(choice: Any, mode: str, tools: tuple[Tool, ...]) -> None:
    read = read_tool_choice(choice, [FOO, BAR])
    assert (read.mode, read.tools) == (mode, tools)


@pytest.mark.parametrize("choice", [None, "auto", "none", False])
def test_no_tools_at_all(choice: Any) -> None:
    assert read_tool_choice(choice, []).tools == ()


@pytest.mark.parametrize("choice", ["any", "required", True])
def test_a_call_cannot_be_demanded_without_tools(choice: Any) -> None:
    with pytest.raises(UnsupportedInput, match="there are no tools"):
        read_tool_choice(choice, [])


def test_a_tool_may_be_called_any() -> None:
    assert read_tool_choice("any", [FOO, Tool("any")]).tools == (Tool("any"),)


@pytest.mark.parametrize("choice", ["baz", {"type": "function", "function": {"name": "baz"}}])
def test_a_name_that_is_not_there_names_those_that_are(choice: Any) -> None:
    with pytest.raises(ValueError, match="'baz' and the tools are foo, bar"):
        read_tool_choice(choice, [FOO, BAR])


@pytest.mark.parametrize("choice", [3, [], {"type": "function"}, {"mode": "auto"}])
def test_what_is_no_choice(choice: Any) -> None:
    with pytest.raises(UnsupportedInput, match="tool_choice takes"):
        read_tool_choice(choice, [FOO])


def test_a_tool_without_a_name() -> None:
    with pytest.raises(UnsupportedInput, match="no name"):
        read_tool_choice("any", [FOO, Tool("")])


def test_two_tools_of_one_name() -> None:
    with pytest.raises(UnsupportedInput, match="the name 'foo'"):
        read_tool_choice("auto", [FOO, BAR, FOO])
