"""Jinja for chat templates: what transformers offers to them, in a sandbox with limits.

Templates come with models and are not trusted: they see plain data, may not change it, and are cut off when they write
too much or take too long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils

from chatlocal.engine.errors import TemplateError

_MAX_TEMPLATE = 1_000_000  # characters
_MAX_OUTPUT = 32_000_000  # characters
_MAX_SECONDS = 30.0

_deadline: ContextVar[float] = ContextVar("template_deadline", default=float("inf"))


@lru_cache(maxsize=64)
def compile_template(source: str) -> jinja2.Template:
    """The template, compiled once. TemplateError with the line when it is not valid Jinja."""
    if len(source) > _MAX_TEMPLATE:
        raise TemplateError(f"The chat template has {len(source)} characters, more than the {_MAX_TEMPLATE} allowed.")
    try:
        return _environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"The chat template is not valid Jinja: line {error.lineno}: {error.message}") from error


def render(source: str, variables: dict[str, Any]) -> str:
    """The text that the template writes. Whatever it raises comes out as TemplateError with its reason."""
    template = compile_template(source)
    token = _deadline.set(time.monotonic() + _MAX_SECONDS)
    try:
        return "".join(_limited(template.generate(variables)))
    except TemplateError:
        raise
    except Exception as error:  # templates run arbitrary expressions, so any exception may come out of one
        raise TemplateError(str(error) or type(error).__name__) from error
    finally:
        _deadline.reset(token)


@lru_cache(maxsize=64)
def literal_text(source: str) -> str:
    """All text that the template writes by itself, pieces kept apart by NUL: markup is looked up in it."""
    compile_template(source)
    tree = _environment.parse(source)
    pieces = {node.data for node in tree.find_all(jinja2.nodes.TemplateData)}
    pieces |= {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
    return "\0".join(sorted(pieces))


@lru_cache(maxsize=64)
def variables_read(source: str) -> frozenset[str]:
    """The names that the template takes from outside."""
    compile_template(source)
    return frozenset(jinja2.meta.find_undeclared_variables(_environment.parse(source))) - set(_environment.globals)


def _limited(pieces: Iterator[str]) -> Iterator[str]:
    written = 0
    for piece in pieces:
        written += len(piece)
        if written > _MAX_OUTPUT:
            raise TemplateError(f"The chat template wrote more than {_MAX_OUTPUT} characters and was stopped.")
        _check_time()
        yield piece


def _check_time() -> None:
    if time.monotonic() > _deadline.get():
        raise TemplateError(f"The chat template ran longer than {_MAX_SECONDS:.0f} seconds and was stopped.")


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Looks at the clock whenever a template reads or calls something, and multiplies within bounds."""

    intercepted_binops = frozenset({"*", "**"})

    def getitem(self, obj: Any, argument: Any) -> Any:
        _check_time()
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        _check_time()
        return super().getattr(obj, attribute)

    def call(self, context: jinja2.runtime.Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        _check_time()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (abs(left) <= 2**32 and abs(right) <= 64):
            raise TemplateError("The chat template computes a power that is too large.")
        for many, times in ((left, right), (right, left)):
            if hasattr(many, "__len__") and isinstance(times, int) and len(many) * times > _MAX_OUTPUT:
                raise TemplateError("The chat template repeats a text too often.")
        return super().call_binop(context, operator, left, right)


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's part for training; here its body is all that counts."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that jinja2 reads

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class _Namespace(jinja2.utils.Namespace):
    """Jinja's namespace, without names that lead into Python's insides."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        for name in dict(*args, **kwargs):
            _check_name(name)
        super().__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise TemplateError(f"The chat template sets {name!r}: names in a namespace may not begin with '_'.")


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # Jinja's own filter escapes HTML and sorts keys; models are trained on plain JSON.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _make_environment() -> _Sandbox:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise, strftime_now=_now, namespace=_Namespace)
    return environment


_environment = _make_environment()
