"""Outputs of each format as models write them, well and badly: what is said, what is called, what stays raw.

The wire forms are those of the vendors' templates and prompt formats.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from chatlocal.engine import toolcalls
from chatlocal.engine.events import CallInvalid, Event, Reasoning
from tests.engine.toolcalls.answers import check
from tests.engine.toolcalls.reading import events_of, pieces


@dataclass(frozen=True)
class Output:
    """An output and what it says. `invalid` are the names (None: not known) and raw texts of calls that are broken."""

    format: str
    why: str
    raw: str
    content: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    invalid: list[tuple[str | None, str]] = field(default_factory=list)
    tools: Any = None
    reasoning: str = ""


def _hermes(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


F_A1 = [("f", {"a": 1})]
BOOLEAN = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}}}

OUTPUTS = [
    # Hermes
    Output("hermes", "text behind a call", _hermes('{"name": "f", "arguments": {"a": 1}}') + "\nok", "ok", F_A1),
    Output("hermes", "arguments as text", _hermes('{"name": "f", "arguments": "{\\"a\\": 1}"}'), calls=F_A1),
    Output("hermes", "null arguments", _hermes('{"name": "f", "arguments": null}'), calls=[("f", {})]),
    Output("hermes", "no arguments", _hermes('{"name": "f"}'), calls=[("f", {})]),
    Output(
        "hermes",
        "two objects in one tag",
        _hermes('{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {}}'),
        calls=[*F_A1, ("g", {})],
    ),
    Output(
        "hermes",
        "a list in one tag",
        _hermes('[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]'),
        calls=[*F_A1, ("g", {})],
    ),
    Output("hermes", "a bracket too many", _hermes('{"name": "f", "arguments": {"a": 1}}}'), "}", F_A1),
    Output("hermes", "prose in the tag", _hermes('{"name": "f", "arguments": {"a": 1}}, ok'), ", ok", F_A1),
    Output("hermes", "a comma too many", _hermes('{"name": "f", "arguments": {"a": 1,}}'), calls=F_A1),
    Output(
        "hermes",
        "spaces that are not JSON's",
        _hermes('{\u3000"name": "f",\xa0"arguments":\u2003{"a":\xa01}}'),
        calls=F_A1,
    ),
    Output(
        "hermes",
        "line ends and other escapes in strings",
        _hermes(
            '{"name": "f", "arguments": {"a": "x\ny\tz", "b": "C:\\dir\\u12", "c": "it\\\'s", "d": True, "e": None}}'
        ),
        calls=[("f", {"a": "x\ny\tz", "b": "C:\\dir\\u12", "c": "it's", "d": True, "e": None})],
    ),
    Output(
        "hermes",
        "a broken call before a good one",
        _hermes('{"name": "g", "arguments": {"b": }}') + _hermes('{"name": "f", "arguments": {"a": 1}}'),
        calls=F_A1,
        invalid=[("g", '{"name": "g", "arguments": {"b": }}')],
    ),
    Output(
        "hermes",
        "a call that is not closed before a good one",
        '<tool_call>\n{"name": "g", "arguments": {"b": 1\n' + _hermes('{"name": "f", "arguments": {"a": 1}}'),
        calls=F_A1,
        invalid=[("g", '{"name": "g", "arguments": {"b": 1')],
    ),
    Output(
        "hermes",
        "cut and ended",
        '<tool_call>\n{"name": "f", "arguments": {"a": 1<|im_end|>',
        invalid=[("f", '{"name": "f", "arguments": {"a": 1')],
    ),
    Output("hermes", "no object", _hermes("f"), invalid=[(None, "f")]),
    Output("hermes", "no name", _hermes('{"arguments": {"a": 1}}'), invalid=[(None, '{"arguments": {"a": 1}}')]),
    Output(
        "hermes",
        "arguments that are no object",
        _hermes('{"name": "f", "arguments": [1]}'),
        invalid=[("f", '{"name": "f", "arguments": [1]}')],
    ),
    Output(
        "hermes",
        "NaN is no JSON",
        _hermes('{"name": "f", "arguments": {"a": NaN}}'),
        invalid=[("f", '{"name": "f", "arguments": {"a": NaN}}')],
    ),
    Output(
        "hermes",
        "a key that is spelt wrongly is not a call without arguments",
        _hermes('{"name": "f", "argments": {"a": 1}}'),
        invalid=[("f", '{"name": "f", "argments": {"a": 1}}')],
    ),
    Output(
        "hermes",
        "two names",
        _hermes('{"name": "f", "name": "g", "arguments": {}}'),
        invalid=[("f", '{"name": "f", "name": "g", "arguments": {}}')],
    ),
    Output(
        "hermes",
        "what else a call says",
        _hermes('{"name": "f", "type": "function", "id": "x", "why": "no idea", "arguments": {"a": 1}, "n": [1]}'),
        calls=F_A1,
        reasoning="why: no idea\nn: [1]",
    ),
    Output("hermes", "an undeclared name", _hermes('{"name": "f", "arguments": {"a": 1}}'), calls=F_A1, tools=["g"]),
    Output("hermes", "an end mark in the text", "write <|im_end|> there<|im_end|>\n", "write <|im_end|> there"),
    Output("hermes", "two end marks", "ok<|im_end|>\n<|endoftext|>", "ok"),
    Output(
        "hermes",
        "thinking about calls",
        "<think>\n<tool_call>x</tool_call>\n</think>\n\nok" + _hermes('{"name": "f", "arguments": {"a": 1}}'),
        "ok",
        F_A1,
        reasoning="<tool_call>x</tool_call>",
    ),
    # Qwen3-Coder
    Output(
        "qwen3_coder",
        "tags on one line",
        "<tool_call><function=f><parameter=a>1</parameter><parameter=b>x y</parameter></function></tool_call>",
        calls=[("f", {"a": 1, "b": "x y"})],
    ),
    Output(
        "qwen3_coder",
        "two functions in one tag, and text",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n"
        "<function=g>\n</function>\n</tool_call> ok",
        "ok",
        [*F_A1, ("g", {})],
    ),
    Output(
        "qwen3_coder",
        "the last tag is missing",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
        calls=F_A1,
    ),
    Output(
        "qwen3_coder",
        "the function's tag is missing",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>",
        calls=F_A1,
    ),
    Output(
        "qwen3_coder",
        "cut between parameters",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n",
        invalid=[("f", "<function=f>\n<parameter=a>\n1\n</parameter>")],
    ),
    Output(
        "qwen3_coder",
        "a closing tag in a value",
        "<tool_call>\n<function=f>\n<parameter=a>\n<x></parameter></x>\n</parameter>\n</function>\n</tool_call>",
        calls=[("f", {"a": "<x></parameter></x>"})],
    ),
    Output(
        "qwen3_coder",
        "closing tags and white space in a value",
        "<tool_call>\n<function=f>\n<parameter=a>\nx</parameter>\n </parameter> y\n</parameter>\n</function>\n"
        "</tool_call>",
        calls=[("f", {"a": "x</parameter>\n </parameter> y"})],
    ),
    Output(
        "qwen3_coder",
        "a value that is not closed",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
        invalid=[("f", "<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</parameter>\n</function>")],
    ),
    Output(
        "qwen3_coder",
        "a call that is not closed before a good one",
        "<tool_call>\n<function=g>\n<parameter=a>\nx\n</tool_call>\n<tool_call>\n<function=f>\n"
        "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        calls=F_A1,
        invalid=[("g", "<function=g>\n<parameter=a>\nx\n</tool_call>")],
    ),
    Output("qwen3_coder", "no function", _hermes('{"name": "f"}'), invalid=[(None, '{"name": "f"}')]),
    Output(
        "qwen3_coder",
        "Python's names of constants without a schema",
        "<tool_call>\n<function=f>\n<parameter=a>\nTrue\n</parameter>\n</function>\n</tool_call>",
        calls=[("f", {"a": "True"})],
    ),
    Output(
        "qwen3_coder",
        "and with one",
        "<tool_call>\n<function=f>\n<parameter=a>\nTrue\n</parameter>\n</function>\n</tool_call>",
        calls=[("f", {"a": True})],
        tools=[BOOLEAN],
    ),
    # Mistral
    Output("mistral", "a call behind text", 'Ok. [TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]', "Ok.", F_A1),
    Output("mistral", "an object without its list", '[TOOL_CALLS]{"name": "f", "arguments": {"a": 1}}', calls=F_A1),
    Output("mistral", "a list that is not closed", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}', calls=F_A1),
    Output("mistral", "a comma at the end", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}},]</s>', calls=F_A1),
    Output("mistral", "a name without [ARGS]", '[TOOL_CALLS]f{"a": 1}', calls=F_A1),
    Output("mistral", "no arguments yet", "[TOOL_CALLS]f[ARGS]", invalid=[("f", "f[ARGS]")]),
    Output("mistral", "a name and nothing else", "[TOOL_CALLS]f</s>", invalid=[(None, "f")]),
    Output("mistral", "prose behind the mark", "[TOOL_CALLS]I call {it}", invalid=[(None, "I call {it}")]),
    Output(
        "mistral",
        "a broken call before a good one",
        '[TOOL_CALLS]g[ARGS]{"b": }[TOOL_CALLS]f[ARGS]{"a": 1}',
        calls=F_A1,
        invalid=[("g", 'g[ARGS]{"b": }')],
    ),
    Output(
        "mistral",
        "marks in strings",
        '[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]</s>"}',
        calls=[("f", {"a": "[TOOL_CALLS]</s>"})],
    ),
    Output("mistral", "struck text", "a <s>b</s> c</s>", "a <s>b</s> c"),
    Output("mistral", "thinking", "[THINK]hm[/THINK]ok", "ok", reasoning="hm"),
    Output("mistral", "no mark", '[{"name": "f", "arguments": {}}]', '[{"name": "f", "arguments": {}}]'),
    # Llama 3
    Output("llama3", "arguments under either name", '{"name": "f", "arguments": {"a": 1}}', calls=F_A1),
    Output("llama3", "arguments first", '{"parameters": {"a": 1}, "name": "f"}', calls=F_A1),
    Output(
        "llama3",
        "lines",
        '{"name": "f", "parameters": {"a": 1}}\n{"name": "g", "parameters": {}}',
        calls=[*F_A1, ("g", {})],
    ),
    Output(
        "llama3",
        "semicolons with space",
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}};',
        ";",
        [*F_A1, ("g", {})],
    ),
    Output(
        "llama3",
        "an undeclared name without a mark",
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name": "f", "parameters": {"a": 1}}',
        tools=["g"],
    ),
    Output("llama3", "and behind one", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}', calls=F_A1, tools=["g"]),
    Output(
        "llama3",
        "and with a type that says so",
        '{"type": "function", "name": "f", "parameters": {"a": 1}}',
        calls=F_A1,
        tools=["g"],
    ),
    Output("llama3", "a declared name alone", '{"name": "f"}', calls=[("f", {})], tools=["f"]),
    Output("llama3", "any name alone", '{"name": "f"}', '{"name": "f"}'),
    Output("llama3", "a record", '{"name": "Bob Smith", "parameters": {}}', '{"name": "Bob Smith", "parameters": {}}'),
    Output("llama3", "a record with more", '{"name": "f", "age": 3}', '{"name": "f", "age": 3}'),
    Output("llama3", "parameters that are none", '{"name": "f", "parameters": 3}', '{"name": "f", "parameters": 3}'),
    Output(
        "llama3",
        "cut",
        '{"name": "f", "parameters": {"a": "x',
        invalid=[("f", '{"name": "f", "parameters": {"a": "x')],
    ),
    Output(
        "llama3",
        "a built-in tool",
        '<|python_tag|>brave_search.call(query="a b")<|eom_id|>',
        calls=[("brave_search", {"query": "a b"})],
    ),
    Output(
        "llama3",
        "code that begins like one",
        '<|python_tag|>box.call(query="a")\nprint(2)',
        calls=[("code_interpreter", {"code": 'box.call(query="a")\nprint(2)'})],
    ),
    Output(
        "llama3",
        "code that is a dict",
        '<|python_tag|>{"foo": 1}',
        calls=[("code_interpreter", {"code": '{"foo": 1}'})],
    ),
    Output(
        "llama3",
        "code behind text",
        "Sure.\n<|python_tag|>1 + 1<|eom_id|>",
        "Sure.",
        [("code_interpreter", {"code": "1 + 1"})],
    ),
    Output("llama3", "a tag behind text", 'Ok. <function=f>{"a": 1}</function> Done', "Ok.  Done", F_A1),
    Output("llama3", "a tag that is not closed", '<function=f>{"a": 1}<|eot_id|>', calls=F_A1),
    Output("llama3", "prose about tags", "Write <function=f> first", "Write <function=f> first"),
    Output("llama3", "a broken tag", '<function=f>{"a": }</function>ok', "ok", invalid=[("f", 'f>{"a": }')]),
    Output("llama3", "a list of something else", "[f(x)]", "[f(x)]"),
    Output("llama3", "a footnote", "[1] says so", "[1] says so"),
    Output("llama3", "a comparison", "[f(a==1)]", "[f(a==1)]"),
    Output("llama3", "an undeclared list", "[f(a=1)]", "[f(a=1)]", tools=["g"]),
    Output("llama3", "a list without names", "[f(1)]", invalid=[("f", "f(1)]")], tools=["f"]),
    # Pythonic
    Output("pythonic", "Llama 4's marks", "<|python_start|>[f(a=1)]<|python_end|><|eot|>", calls=F_A1),
    Output(
        "pythonic",
        "LFM2's marks",
        "Ok.<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>\nDone",
        "Ok.\nDone",
        [*F_A1, ("g", {})],
    ),
    Output(
        "pythonic",
        "LFM2's objects",
        '<|tool_call_start|>[{"name": "f", "arguments": {"a": 1}}]<|tool_call_end|>',
        calls=F_A1,
    ),
    Output("pythonic", "behind text", "Ok. [f(a=1)]", "Ok. [f(a=1)]"),
    Output("pythonic", "a list that is not closed", "[f(a=1)", calls=F_A1),
    Output(
        "pythonic",
        "every kind of literal",
        "[f(a='x\\'y', b=\"p\" 'q', c=(1, 2), d={'k': [None, True]}, e=-1.5, f=0x10, g=1_000, h=(3), i=[], j=r'\\d')]",
        calls=[
            (
                "f",
                {"a": "x'y", "b": "pq", "c": [1, 2], "d": {"k": [None, True]}, "e": -1.5, "f": 16}
                | {"g": 1000, "h": 3, "i": [], "j": "\\d"},
            )
        ],
    ),
    Output(
        "pythonic",
        "names that are not Python's",
        "[my-tool.v2(**{'a b': 1}, c=2)]",
        calls=[("my-tool.v2", {"a b": 1, "c": 2})],
    ),
    Output("pythonic", "JSON's constants", "[f(a=true, b=null)]", calls=[("f", {"a": True, "b": None})]),
    Output("pythonic", "cut behind a comma", "[f(a=1), ", calls=F_A1),
    Output("pythonic", "a call in a call", "[f(a=g(1))]", invalid=[("f", "f(a=g(1))]")]),
    Output("pythonic", "a sum", "[f(a=1+1)]", invalid=[("f", "f(a=1+1)]")]),
    Output("pythonic", "an f-string", "[f(a=f'{x}')]", invalid=[("f", "f(a=f'{x}')]")]),
    Output("pythonic", "a set", "[f(a={1})]", invalid=[("f", "f(a={1})]")]),
    Output("pythonic", "the second one broken", "[f(a=1), g(b)]", calls=F_A1, invalid=[("g", "g(b)]")]),
    Output("pythonic", "cut", "[f(a='x", invalid=[("f", "f(a='x")]),
    # ChatGLM3
    Output("chatglm3", "the fence is missing", "f\n```python\ntool_call(a=1)", calls=F_A1),
    Output(
        "chatglm3",
        "two calls",
        "f\n```python\ntool_call(a=1)\n```<|assistant|>g\n```python\ntool_call()\n```",
        calls=[*F_A1, ("g", {})],
    ),
    Output("chatglm3", "text behind a call", "f\n```python\ntool_call(a=1)\n```\nok", "ok", F_A1),
    Output("chatglm3", "code", "interpreter\n```python\nprint(1)\n```", "interpreter\n```python\nprint(1)\n```"),
    Output("chatglm3", "a fence in a text", "f\n```python\ntool_call(a='```')\n```", calls=[("f", {"a": "```"})]),
    Output("chatglm3", "a line end in a text", "f\n```python\ntool_call(a='x\ny')\n```", calls=[("f", {"a": "x\ny"})]),
    Output("chatglm3", "an undeclared name", "f\n```python\ntool_call(a=1)\n```", calls=F_A1, tools=["g"]),
    Output(
        "chatglm3",
        "a broken call before a good one",
        "g\n```python\ntool_call(b)\n```<|assistant|>f\n```python\ntool_call(a=1)\n```",
        calls=F_A1,
        invalid=[("g", "g\n```python\ntool_call(b)")],
    ),
    # GLM-4
    Output("glm4", "two calls", 'f\n{"a": 1}<|assistant|>g\n{}', calls=[*F_A1, ("g", {})]),
    Output("glm4", "two calls without the token", 'f\n{"a": 1}\ng\n{}', calls=[*F_A1, ("g", {})]),
    Output("glm4", "a call behind text", 'Ok.<|assistant|>f\n{"a": 1}<|observation|>', "Ok.", F_A1),
    Output("glm4", "text behind a call", 'f\n{"a": 1}\nok then', "ok then", F_A1),
    Output("glm4", "a heading", 'Here it is:\n{"a": 1}', 'Here it is:\n{"a": 1}'),
    Output("glm4", "a set", "f\n{1, 2}", "f\n{1, 2}"),
    Output("glm4", "no tools at all", 'f\n{"a": 1}', 'f\n{"a": 1}', tools=[]),
    Output("glm4", "a declared name of another kind", '查询\n{"a": 1}', calls=[("查询", {"a": 1})], tools=["查询"]),
    Output("glm4", "a word of another kind", '查询\n{"a": 1}', '查询\n{"a": 1}'),
    # GLM-4.5
    Output(
        "glm4.5",
        "two calls behind thinking",
        "<think>hm</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
        calls=[*F_A1, ("g", {})],
        reasoning="hm",
    ),
    Output(
        "glm4.5",
        "without line ends",
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>ok",
        "ok",
        F_A1,
    ),
    Output(
        "glm4.5",
        "a text",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>Boston, MA\n</arg_value>\n</tool_call>",
        calls=[("f", {"a": "Boston, MA\n"})],
    ),
    Output(
        "glm4.5",
        "cut between arguments",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>",
        invalid=[("f", "f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>")],
    ),
    Output(
        "glm4.5",
        "a value without a key",
        "<tool_call>f\n<arg_value>1</arg_value>\n</tool_call>",
        invalid=[("f", "f\n<arg_value>1</arg_value>")],
    ),
    Output("glm4.5", "no name", "<tool_call></tool_call>ok", "ok", invalid=[(None, "")]),
    # DeepSeek
    Output(
        "deepseek_v3",
        "broken arguments",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{"b": \n```<｜tool▁call▁end｜>'
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        calls=F_A1,
        invalid=[("g", 'function<｜tool▁sep｜>g\n```json\n{"b": \n```')],
    ),
    Output(
        "deepseek_v3",
        "marks missing at the end",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}',
        calls=F_A1,
    ),
    Output(
        "deepseek_v3",
        "without a code block",
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{"a": 1}<｜tool▁call▁end｜>',
        calls=F_A1,
    ),
    Output(
        "deepseek_v3",
        "cut in the name",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f",
        invalid=[("f", "function<｜tool▁sep｜>f")],
    ),
    Output("deepseek_v3", "cut before it", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", invalid=[(None, "")]),
    Output(
        "deepseek_v3.1",
        "a tool named function",
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>',
        calls=[("function", {"a": 1})],
    ),
    Output(
        "deepseek_v3.1",
        "the other form",
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>',
        calls=F_A1,
    ),
    Output(
        "deepseek_r1",
        "behind thinking",
        "<think>\nhm\n</think>\n\nOk.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
        '```json\n{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
        "Ok.",
        F_A1,
        reasoning="hm",
    ),
]


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: f"{output.format}: {output.why}")
def test_what_an_output_says(output: Output) -> None:
    content, calls, invalid = toolcalls.get(output.format).parse(output.raw, output.tools)
    assert content == output.content
    assert [(call.name, json.loads(call.arguments)) for call in calls] == output.calls
    assert [(call.name, call.raw) for call in invalid] == output.invalid
    assert _thought(events_of(output.format, [output.raw], output.tools)) == output.reasoning


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: f"{output.format}: {output.why}")
def test_the_pieces_do_not_matter(output: Output) -> None:
    whole = events_of(output.format, [output.raw], output.tools)
    check(whole)
    assert events_of(output.format, list(output.raw), output.tools) == whole
    for place in range(len(output.raw)):
        assert events_of(output.format, pieces(output.raw, [place]), output.tools) == whole


def test_invalid_calls_say_why() -> None:
    events = events_of("hermes", [_hermes('{"name": "f", "arguments": {"a": }}')])
    assert events[-1] == CallInvalid(0, '{"name": "f", "arguments": {"a": }}', "the arguments are no JSON object")


def _thought(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))
