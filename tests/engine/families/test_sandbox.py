from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from chatlocal.engine.errors import TemplateError
from chatlocal.engine.families import sandbox


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


def test_today_is_in_local_time() -> None:
    assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_what_leads_out_of_the_sandbox_is_an_error(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source, messages=[])


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * [1] }}",
        "{{ 9 ** 9999999 }}",
        "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
)
def test_too_much_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


def test_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_MAX_SECONDS", 0.05)
    with pytest.raises(TemplateError, match="ran longer"):
        render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")


def test_a_huge_template_is_refused() -> None:
    with pytest.raises(TemplateError, match="1000001 characters"):
        sandbox.compile_template("x" * 1_000_001)


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
