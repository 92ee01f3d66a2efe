"""What goes out when: text at once, arguments as they come, and no more held back than may become a mark."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallDelta, CallStart, Event, Reasoning, Text
from tests.engine.toolcalls.answers import LOSSLESS
from tests.engine.toolcalls.reading import merged

_THREE, _SEP = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁sep｜>"


def _fed(format: str, text: str, tools: Any = None, opened: str = "") -> list[Event]:
    """The merged events of a text that comes a character at a time and is not over."""
    parser = toolcalls.get(format).parser(tools, opened)
    return merged(event for char in text for event in parser.feed(char))


@pytest.mark.parametrize("format", LOSSLESS)
@pytest.mark.parametrize("tools", [None, ["search"], []])
def test_text_flows_word_by_word(format: str, tools: list[str] | None) -> None:
    text = "The answer: 4 < 5, a[1] = {b}, `c`. 你好"
    parser = toolcalls.get(format).parser(tools)
    out = ""
    for place, char in enumerate(text, 1):
        out += "".join(event.text for event in parser.feed(char) if isinstance(event, Text))
        # Held back is a word that may be a name, white space, and the beginning of a mark.
        assert len(text[:place]) - len(out) <= len("The ")
    assert out == text


@pytest.mark.parametrize(
    ("format", "text", "out"),
    [
        ("hermes", "a <tool_", "a"),
        ("hermes", "a <tool_box", "a <tool_box"),
        ("hermes", "a <|im", "a"),
        ("hermes", "a <|im_end|> b", "a <|im_end|> b"),
        ("mistral", "a [TOOL", "a"),
        ("mistral", "a [1]", "a [1]"),
        ("llama3", '{"foo', '{"foo'),
        ("llama3", '{"na', ""),
        ("llama3", '{"name": "get_', ""),
        ("llama3", '{"name": "get w', '{"name": "get w'),
        ("llama3", '{"name": "f", "a', ""),
        ("llama3", '{"name": "f", "ag', '{"name": "f", "ag'),
        ("llama3", "[f", ""),
        ("llama3", "[f, ", "[f,"),
        ("llama3", "[f(x)", "[f(x)"),
        ("llama3", "a <function=f", "a"),
        ("llama3", "a <function=f> b", "a <function=f> b"),
        ("glm4", "search", ""),
        ("glm4", "search ", "search"),
        ("glm4", "search\n", ""),
        ("glm4", "search\nx", "search\nx"),
        ("glm4", "search\n{", ""),
        ("glm4", "search\n{1", "search\n{1"),
        ("chatglm3", "search\n```py", ""),
        ("chatglm3", "search\n```json", "search\n```json"),
        ("chatglm3", "search\n```python\ntool", ""),
        ("chatglm3", "search\n```python\nprint", "search\n```python\nprint"),
    ],
)
def test_what_may_become_a_call_is_held_back_and_no_more(format: str, text: str, out: str) -> None:
    assert _fed(format, text) == ([Text(out)] if out else [])


def test_declared_tools_decide_early() -> None:
    assert _fed("llama3", '{"name": "other"', ["search"]) == [Text('{"name": "other"')]
    assert [type(event) for event in _fed("llama3", '{"name": "search", "parameters": {', ["search"])] == [
        CallStart,
        CallDelta,
    ]
    assert _fed("pythonic", "[other(", ["search"]) == [Text("[other(")]
    assert [type(event) for event in _fed("pythonic", "[search(", ["search"])] == [CallStart, CallDelta]


@pytest.mark.parametrize(
    ("format", "text", "arguments"),
    [
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": "long te', '{"a": "long te'),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "long te', '{"a": "long te'),
        ("mistral", '[TOOL_CALLS][{"id": "x", "name": "f", "arguments": {"a": "long te', '{"a": "long te'),
        ("llama3", '{"name": "f", "parameters": {"a": "long te', '{"a": "long te'),
        ("llama3", '<function=f>{"a": "long te', '{"a": "long te'),
        ("llama3", "<|python_tag|>print(1)", '{"code": "print(1)'),
        ("llama3", "[f(a='long te", '{"a": "long te'),
        ("pythonic", "[f(a='long te", '{"a": "long te'),
        ("chatglm3", "f\n```python\ntool_call(a='long te", '{"a": "long te'),
        ("glm4", 'f\n{"a": "long te', '{"a": "long te'),
        ("deepseek_v3", f'{_THREE}function{_SEP}f\n```json\n{{"a": "long te', '{"a": "long te'),
        ("deepseek_v3.1", f'{_THREE}f{_SEP}{{"a": "long te', '{"a": "long te'),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=", '{"a": 1'),
        ("glm4.5", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>", '{"a": 1'),
    ],
)
def test_arguments_go_out_as_they_come(format: str, text: str, arguments: str) -> None:
    start, *rest = _fed(format, text)
    assert isinstance(start, CallStart)
    assert rest == [CallDelta(0, arguments)]


def test_an_id_behind_the_arguments_is_waited_for() -> None:
    text = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"'
    assert _fed("mistral", text) == []
    assert _fed("mistral", text + "}") == [CallStart(0, "abcdefghi", "f"), CallDelta(0, '{"a": 1}')]


@pytest.mark.parametrize(
    ("format", "opened", "text", "out"),
    [
        ("hermes", "", "<think>\nhm", [Reasoning("hm")]),
        ("hermes", "", " <thi", []),
        ("hermes", "<think>\n", "hm", [Reasoning("hm")]),
        ("hermes", "<think>\n", "<think>\nhm</think>\n\nok", [Reasoning("hm"), Text("ok")]),
        ("hermes", "<think>\n", "hm</think>\n\nok", [Reasoning("hm"), Text("ok")]),
        ("hermes", "<think>\n\n</think>\n\n", "ok", [Text("ok")]),
        ("deepseek_r1", "<think>\n", "hm</think>ok", [Reasoning("hm"), Text("ok")]),
        ("mistral", "", "[THINK]hm[/THINK]ok", [Reasoning("hm"), Text("ok")]),
        ("mistral", "[THINK]", "hm[/THINK]ok", [Reasoning("hm"), Text("ok")]),
        ("mistral", "", "<think>hm</think>ok", [Reasoning("hm"), Text("ok")]),
        ("hermes", "", "ok <think>hm</think>", [Text("ok <think>hm</think>")]),
    ],
)
def test_thinking_is_kept_apart(format: str, opened: str, text: str, out: list[Event]) -> None:
    assert _fed(format, text, opened=opened) == out


def test_calls_follow_thinking_that_the_prompt_opened() -> None:
    text = 'search\n{"q": 1}</think>\n\nsearch\n{"q": 2}'
    events = _fed("glm4", text, opened="<think>")
    assert events[0] == Reasoning('search\n{"q": 1}')
    assert isinstance(events[1], CallStart)
    assert events[2:] == [CallDelta(0, '{"q": 2}')]


def test_one_salt_gives_the_same_ids_and_another_gives_others() -> None:
    raw = '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * 2

    def ids(salt: str) -> list[str]:
        return [
            event.id for event in toolcalls.get("hermes").parser(salt=salt).feed(raw) if isinstance(event, CallStart)
        ]

    assert ids("a") == ids("a")
    assert len({*ids("a"), *ids("b")}) == 4
    assert all(len(id) == 9 and id.isalnum() for id in ids("a"))
