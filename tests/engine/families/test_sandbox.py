from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from chatlocal.engine.errors import TemplateError
from chatlocal.engine.families import limits, sandbox


def render(source: str, **variables: Any) -> str:
    return sandbox.render(source, variables)


def test_json_is_plain_json() -> None:
    value = {"b": "查 <b>&'", "a": None}
    assert render("{{ value | tojson }}", value=value) == '{"b": "查 <b>&\'", "a": null}'
    assert render("{{ value | tojson(indent=1) }}", value=[1]) == "[\n 1\n]"
    assert render("{{ value | tojson(ensure_ascii=True) }}", value="é") == '"\\u00e9"'


def test_blocks_leave_no_lines_behind() -> None:
    assert render("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_loops_can_be_left() -> None:
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"


def test_the_generation_mark_is_its_body() -> None:
    assert render("{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}") == "21"


_MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "What's 50% of <b>a & b</b>?\n\nTell me,\tplease."},
    {"role": "assistant", "content": "<think>hm</think>half", "tool_calls": [{"name": "f", "arguments": {"x": [1]}}]},
]


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages[::-1] if m.role != 'system' %}"
        "{{ loop.index0 }}{{ loop.last }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ loop.cycle('a', 'b') }}"
        "{{ loop.previtem.role if loop.previtem else '' }}{% endfor %}",
        "{% for m in messages recursive %}{{ m.role }}{% else %}none{% endfor %}",
        "{% for m in [] %}{% else %}none{% endfor %}",
        "{% set ns = namespace(text='', n=[]) %}{% for m in messages %}"
        "{% set ns.text = ns.text + m.role ~ loop.index %}"
        "{% set ns.n = ns.n + [m.content | length] %}{% endfor %}{{ ns.text }}{{ ns.n }}{{ ns.n | sum }}",
        "{% macro show(m, mark='-') %}{{ mark }}{{ m.role | upper }}{{ caller() if caller else '' }}{% endmacro %}"
        "{{ show(messages[0], mark='*') }}{% call show(messages[1]) %}inner{% endcall %}",
        "{{ messages[2].content.split('</think>')[-1].lstrip('\n') }}{{ messages[1].content.replace('b', 'c', 1) }}",
        "{{ '{:>8}|{x}'.format('a', x=1.5) }}{{ '%5.2f%% %s' % (1.5, 'a') }}",
        "{{ '%(a)s' % {'a': 1} }}{{ '%s-%s' | format(1, 2) }}",
        "{{ messages | map(attribute='role') | join(', ') }}{{ ', '.join(messages | map(attribute='role')) }}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        "{{ messages | rejectattr('tool_calls') | list }}",
        "{{ messages | tojson(indent=4) }}{{ messages[2].tool_calls[0].arguments | tojson(separators=(',', ':')) }}",
        "{{ dict(a=1, **{'b': 2}) }}{{ dict.fromkeys('ab', 1) }}",
        "{{ {'b': 1, 'a': 2} | dictsort }}{{ [3, 1, 2] | sort(reverse=true) }}",
        "{{ messages[0].items() | list }}{{ messages[0].get('role', 'x') }}",
        "{{ messages[0].get('name', 'x') }}{{ messages[0] | items | list }}",
        "{{ 7 // 2 }}{{ 2 ** 8 }}{{ 7 % 4 }}{{ -3 + 1 }}{{ '=' * 10 }}{{ 1 / 4 }}{{ 'a' ~ none ~ 1 ~ [1] }}",
        "{{ messages[1].content | trim | indent(2) }}",
        "{{ 'a\nb' | indent(width=4, first=true) }}{{ 'abc' | truncate(2, true, '', 0) }}",
        "{% set x %}{% filter upper %}a{{ messages[0].role }}{% endfilter %}"
        "{% endset %}{{ x | center(9) }}|{{ x | replace('A', 'b') }}",
        "{% if messages[0] is mapping and messages is sequence and 'role' in messages[0] and x is not defined %}"
        "y{% endif %}",
        "{% with a = 1, b = 2 %}{{ (a, b) }}{{ [a, [b]] }}{% endwith %}"
        "{{ range(3) | list }}{{ cycler('a', 'b').next() }}",
        "{{ messages | groupby('role') | map('first') | join }}",
        "{{ [1, 2, 3] | batch(2, 0) | list }}{{ 2.567 | round(1) }}",
        "{{ 'a-b'.rsplit('-', 1) }}{{ ' a '.strip() }}{{ 'a' in 'ab' }}",
        "{{ 'ab'[::-1] }}{{ 'ab'.startswith(('a', 'c')) }}",
        "{{ '<a>' | e }}{{ 'x' | default('y') }}{{ z | default('y', true) }}",
        "{{ z }}{{ none }}{{ true }}{{ joiner(', ')() }}",
    ],
)
def test_what_templates_do_is_what_transformers_does(source: str) -> None:
    assert render(source, messages=_MESSAGES) == render_jinja_template([_MESSAGES], chat_template=source)[0][0]


class TestTime:
    def test_today_is_in_local_time(self) -> None:
        assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}

    def test_it_can_be_given(self) -> None:
        moment = datetime(2024, 7, 26, 13, 5)
        assert sandbox.render("{{ strftime_now('%d %b %Y %H:%M') }}", {}, moment) == "26 Jul 2024 13:05"

    def test_it_stands_still_while_a_template_renders(self) -> None:
        now = "{{ strftime_now('%H:%M:%S.%f') }}"
        first, last = render(f"{now} {{% for i in range(9999) %}}{{% endfor %}}{now}").split(" ")
        assert first == last

    def test_it_is_known_whether_a_template_tells_it(self) -> None:
        assert sandbox.tells_time("{% set now = strftime_now %}{{ now('%Y') }}")
        assert not sandbox.tells_time("{{ date_string }}strftime_now")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ ([''] | map(attribute='__class__') | first).__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format('').x.y }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% macro f() %}{% endmacro %}{{ f._func.__code__ }}",
        "{% for i in [1] %}{{ loop._iterator.x }}{% endfor %}",
        "{{ self._TemplateReference__context.x }}",
        "{{ messages.append(1) }}",
        "{{ (messages | attr('append'))(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ dict.update(messages[0], role='x') }}",
        "{{ namespace.__setitem__(namespace(), '_x', 1) }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ lipsum() }}",
    ],
)
def test_what_leads_out_of_the_sandbox_is_an_error(source: str) -> None:
    messages = [{"role": "user"}]
    with pytest.raises(TemplateError):
        render(source, messages=messages)
    assert messages == [{"role": "user"}]


def grown(step: str, first: str = "'a' * 9999", shown: str = "") -> str:
    """A template that makes ns.x from itself sixty times."""
    return f"{{% set ns = namespace(x={first}) %}}{{% for i in range(60) %}}{step}{{% endfor %}}{shown}"


def doubled(expression: str, first: str = "'a' * 9999", shown: str = "") -> str:
    return grown(f"{{% set ns.x = {expression} %}}", first, shown)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * [1] }}",
        "{{ (1,) * 1000000000 }}",
        "{{ 9 ** 9999999 }}",
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
        "{% for i in range(1000000000) %}{% endfor %}",
        doubled("ns.x + ns.x"),
        doubled("ns.x + ns.x", "[1]"),
        doubled("ns.x ~ ns.x"),
        doubled("[ns.x, ns.x] | join"),
        doubled("''.join([ns.x, ns.x])"),
        doubled("ns.x.replace('a', 'aa')"),
        doubled("ns.x * ns.x", "3", "{{ ns.x }}"),
        grown("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        # Small in memory, huge when it is written: lists of lists of lists, each of them twice.
        doubled("[ns.x, ns.x]", "['a']", "{{ ns.x }}"),
        doubled("(ns.x, ns.x)", "('a',)", "{{ {ns.x: 1} }}"),
        doubled("{'a': ns.x, 'b': ns.x}", "'a'", "{{ ns.x | tojson }}"),
        doubled("dict(a=ns.x, b=ns.x)", "'a'", "{{ '%s' % ns.x }}"),
        doubled("(ns.x + ns.x) | batch(2) | list", "['a', 'b']", "{{ ns.x ~ '' }}"),
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}"
        "{% else %}{{ 'a' * 99999 }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% set x = range(99999) | list %}{% for i in range(99999) %}{{ x }}{% endfor %}",
        "{% set x = 'a' * 999999 %}{% set y %}{% for i in range(99999) %}{{ x }}{% endfor %}{% endset %}",
        "".join(f"{{% set x{place} = 'a' * 60000000 %}}" for place in range(50)),
        "{{ ('a' * 999999) | replace('a', 'b' * 999999) }}",
        "{{ ('a' * 999999) | replace(new='b' * 999999, old='a') }}",
        "{{ ('a' * 999999).join(range(99999) | map('string')) }}",
        "{{ range(99999) | join('a' * 999999) }}",
        "{{ range(99999) | join(d='a' * 999999) }}",
        "{{ 'x'.center(10 ** 10) }}",
        "{{ 'x' | center(10 ** 10) }}",
        "{{ 'x'.zfill(10 ** 10) }}",
        "{% filter center(10 ** 10) %}x{% endfilter %}",
        "{{ ('\t' * 99999).expandtabs(999999) }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 999999999) }}",
        "{{ '{a:>999999999}'.format_map({'a': 1}) }}",
        "{{ ('{0}' * 99999).format('x' * 99999) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%.999999999f' % 1.0 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ ('%(a)s' * 99999) % {'a': 'x' * 99999} }}",
        "{{ ('\n' * 99999) | indent(99999) }}",
        "{{ ('\n' * 99999) | indent(width='x' * 99999) }}",
        "{{ [1] | batch(10 ** 9, 'x') | list }}",
        "{{ [1] | slice(10 ** 9) | list }}",
        "{{ 1.5 | round(10 ** 9, 'ceil') }}",
        "{{ [1, [2]] | tojson(indent=10 ** 9) }}",
        "{{ ([[[1]]] * 99999) | tojson(indent=99999) }}",
        "{{ (['a'] * 99999) | tojson(separators=(',' * 99999, ':')) }}",
        "{{ ([[1]] * 99999) | sum(start=[]) }}",
        "{{ ('a ' * 9999999).split() }}",
        "{{ ('a' * 9999999) | list }}",
        "{{ ('<!-- -->' * 99999) | striptags }}",
        "{{ (('<!-- -->' * 99999) | safe).striptags() }}",
        "{{ ('a ' * 9999) | wordwrap(1, true, 'x' * 999999) }}",
        "{{ ('a' * 29999999).rfind('b' + 'a' * 14999999) }}",
        "{{ ('a' * 2999999).strip('bcdefghijk' * 99999 + 'a') }}",
        "{{ ('1' * 999999) | int(0, 2) // 3 }}",
        "{{ 'a'.encode().center(10 ** 9) }}",
        "{{ (5).to_bytes(10 ** 9, 'big') }}",
        "{{ ('a' * 99999).translate({97: 'b' * 99999}) }}",
        "{{ strftime_now('%c' * 99999) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    ],
)
def test_too_much_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for i in r %}{% for j in r if false %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ loop.cycle('', '') }}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set big = range(99999) | list %}{{ range(99999) | select('in', big) | list }}",
        "{% set a = 'a' * 29999999 %}{% set b = 'a' * 29999999 %}"
        "{% for i in range(99999) %}{% set c = a == b %}{% endfor %}",
    ],
)
def test_too_long_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SECONDS", 0.05)
    with pytest.raises(TemplateError, match="ran longer"):
        render(source)


def test_a_namespace_within_itself_can_be_written() -> None:
    assert render("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}") == "[<Namespace>]"


def test_reasons_are_of_a_length_to_read() -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception('a' * 999999) }}")
    assert len(str(caught.value)) < 2000


def test_a_huge_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="1000001 characters"):
        sandbox.compile_template("x" * 1_000_001)


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}",
        "{{ a" + ".b" * 9999 + " }}",
        "{{ 1" + "+1" * 9999 + " }}",
        "{{ 'a'" + "|upper" * 9999 + " }}",
        "{% for i in x %}" * 30 + "{% endfor %}" * 30,
        "{% if x %}" * 999 + "{% endif %}" * 999,
    ],
)
def test_a_template_too_deep_for_the_compiler_is_an_error(source: str) -> None:
    with pytest.raises(TemplateError, match="cannot be compiled"):
        sandbox.compile_template(source)


def test_a_syntax_error_names_the_line() -> None:
    with pytest.raises(TemplateError, match="line 2"):
        sandbox.compile_template("x\n{% if %}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [("{{ raise_exception('No way.') }}", "No way."), ("{{ 'a' + [] }}", "str"), ("{{ a.b.c }}", "undefined")],
)
def test_errors_keep_their_reason(source: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(reason)):
        render(source)


def test_literal_text_is_what_the_template_writes_itself() -> None:
    pieces = sandbox.literal_text("<a>{{ '<b>' + x }}{# <c> #}{% if y == '<d>' %}{% endif %}").split("\0")
    assert sorted(pieces) == ["<a>", "<b>", "<d>"]


def test_variables_read_are_those_from_outside() -> None:
    assert sandbox.variables_read("{{ a }}{% for b in range(c) %}{{ b }}{% endfor %}") == {"a", "c"}
