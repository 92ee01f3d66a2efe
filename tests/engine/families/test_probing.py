"""How a template wants tool calls is found out by rendering one."""

from __future__ import annotations

from typing import Any

import pytest

from chatlocal.engine.errors import UnsupportedRole
from chatlocal.engine.families.jinja import JinjaFamily
from tests.tiny import tiny_tokenizer

_TURNS = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
_END = "<|im_end|>\n{% endfor %}"

# Qwen3-Coder: names and values in tags.
TAGS = (
    _TURNS + "{% for call in message.tool_calls or [] %}<function={{ call.function.name }}>"
    "{% for name, value in call.function.arguments.items() %}<parameter={{ name }}>{{ value }}</parameter>{% endfor %}"
    "</function>{% endfor %}" + _END
)
# Gemma 4: a way of its own to write values, and the whole text where there are no names.
OWN_QUOTES = (
    _TURNS + "{% for call in message.tool_calls or [] %}{{ call.function.name }}{{ '{' }}"
    "{% if call.function.arguments is mapping %}"
    '{% for name, value in call.function.arguments.items() %}{{ name }}:<|"|>{{ value }}<|"|>{% endfor %}'
    "{% else %}{{ call.function.arguments }}{% endif %}{{ '}' }}{% endfor %}" + _END
)
# Arguments as they are given: a dict would come out as Python spells it.
AS_GIVEN = (
    _TURNS + "{% for call in message.tool_calls or [] %}{{ call.function.name }}:{{ call.function.arguments }}"
    "{% endfor %}" + _END
)
# Arguments through tojson: text would come out as JSON inside of JSON.
AS_JSON = (
    _TURNS + "{% for call in message.tool_calls or [] %}{{ call.function.name }}:"
    "{{ call.function.arguments | tojson }}{% endfor %}" + _END
)


@pytest.mark.parametrize(
    ("template", "written"),
    [
        (TAGS, "<function=f><parameter=city>Paris</parameter></function>"),
        (OWN_QUOTES, 'f{city:<|"|>Paris<|"|>}'),
        (AS_GIVEN, 'f:{"city": "Paris"}'),
        (AS_JSON, 'f:{"city": "Paris"}'),
    ],
)
def test_calls_are_written_as_the_template_means_them(template: str, written: str) -> None:
    call: dict[str, Any] = {"id": "1", "function": {"name": "f", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "22"},
    ]
    assert f"assistant\n{written}<|im_end|>" in JinjaFamily(tiny_tokenizer(), template).render(messages).text


def test_results_that_would_be_dropped_are_refused() -> None:
    silent = (
        "{% for m in messages %}{% if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>"
        "{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "Hi"}, {"role": "tool", "content": "22"}]
    with pytest.raises(UnsupportedRole, match="Message 1 "):
        JinjaFamily(tiny_tokenizer(), silent).render(messages)
    written = silent.replace("m.role != 'tool'", "true")
    assert "tool\n22" in JinjaFamily(tiny_tokenizer(), written).render(messages).text


def test_arguments_nested_beyond_measure_stay_text() -> None:
    deep = '{"a":' * 2000 + "1" + "}" * 2000
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": deep}}]},
        {"role": "tool", "tool_call_id": "1", "content": "22"},
    ]
    assert deep[:20] in JinjaFamily(tiny_tokenizer(), AS_GIVEN).render(messages).text
