"""Jinja for chat templates: what transformers offers to them, in a sandbox with limits.

Templates come with models and are not trusted: they see plain data, may not change it, and are cut off when they write
too much or take too long.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
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
import jinja2.visitor

from chatlocal.engine.errors import TemplateError
from chatlocal.engine.families.limits import MAX_OUTPUT, LimitPassed, Limits, current_limits

_MAX_TEMPLATE = 200_000  # characters
_MAX_DATE_PATTERN = 1_000  # characters
_MAX_REASON = 1_000  # characters

_moment: ContextVar[datetime] = ContextVar("template_moment")


@lru_cache(maxsize=64)
def compile_template(source: str) -> jinja2.Template:
    """The template, compiled once. TemplateError with the line when it is not valid Jinja."""
    if len(source) > _MAX_TEMPLATE:
        raise TemplateError(f"The chat template has {len(source)} characters, more than the {_MAX_TEMPLATE} allowed.")
    try:
        return _environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"The chat template is not valid Jinja: line {error.lineno}: {error.message}") from error
    except Exception as error:  # Python's own compiler has limits too, such as on blocks in blocks
        raise TemplateError(f"The chat template cannot be compiled: {_reason(error)}") from error


def render(source: str, variables: dict[str, Any], moment: datetime | None = None) -> str:
    """The text that the template writes. Whatever it raises comes out as TemplateError with its reason.

    `moment` is what `strftime_now` shows, the time of the call if None.
    """
    template = compile_template(source)
    limiting = current_limits.set(Limits())
    timing = _moment.set(moment or datetime.now())
    try:
        return "".join(_limited(template.generate(variables)))
    except TemplateError:
        raise
    except Exception as error:  # templates run arbitrary expressions, so any exception may come out of one
        raise TemplateError(_reason(error)) from error
    finally:
        current_limits.reset(limiting)
        _moment.reset(timing)


@lru_cache(maxsize=64)
def literal_text(source: str) -> str:
    """All text that the template writes by itself, pieces kept apart by NUL: markup is looked up in it."""
    tree = _tree(source)
    pieces = {node.data for node in tree.find_all(jinja2.nodes.TemplateData)}
    pieces |= {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
    return "\0".join(sorted(pieces))


@lru_cache(maxsize=64)
def variables_read(source: str) -> frozenset[str]:
    """The names that the template takes from outside."""
    return frozenset(jinja2.meta.find_undeclared_variables(_tree(source))) - set(_environment.globals)


@lru_cache(maxsize=64)
def tells_time(source: str) -> bool:
    """Whether the template may write what day or time it is."""
    return any(name.name == "strftime_now" for name in _tree(source).find_all(jinja2.nodes.Name))


def _tree(source: str) -> jinja2.nodes.Template:
    compile_template(source)
    return _environment.parse(source)


def _limited(pieces: Iterator[str]) -> Iterator[str]:
    written = 0
    for piece in pieces:
        written += len(piece)
        if written > MAX_OUTPUT:
            raise LimitPassed(f"The chat template wrote more than {MAX_OUTPUT} characters and was stopped.")
        current_limits.get().check_time()
        yield piece


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MAX_REASON]


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Holds to the limits wherever a template reads, calls, computes or writes something."""

    intercepted_binops = frozenset(jinja2.sandbox.SandboxedEnvironment.default_binop_table)

    def getitem(self, obj: Any, argument: Any) -> Any:
        current_limits.get().check_time()
        item = super().getitem(obj, argument)
        return current_limits.get().made(item) if isinstance(argument, slice) else item

    def getattr(self, obj: Any, attribute: str) -> Any:
        current_limits.get().check_time()
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # No template for text needs bytes, nor tables that replace characters.
        if attr in ("encode", "to_bytes", "translate") or isinstance(obj, (bytes, bytearray)):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: jinja2.runtime.Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if owner is self:
            return super().call(context, obj, *args, **kwargs)
        current_limits.get().check_time()
        if owner is not None:
            if obj.__name__ == "join" and args and not isinstance(args[0], (list, tuple, str)):
                args = (list(args[0]), *args[1:])  # so that it can be looked at
            current_limits.get().check_method(owner, obj.__name__, (*args, *kwargs.values()))
        made = super().call(context, obj, *args, **kwargs)
        return made if _is_lookup(obj) else current_limits.get().made(made)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        current_limits.get().check_operation(operator, left, right)
        return current_limits.get().made(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        formatting = super().wrap_str_format(value)
        if formatting is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> str:
            current_limits.get().check_format(value.__self__, [args, kwargs])
            return formatting(*args, **kwargs)

        return checked

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree: jinja2.nodes.Template = _Watched().visit(super()._parse(source, name, filename))
        return tree

    # What _Watched puts into templates.

    def watch(self) -> bool:
        current_limits.get().check_time()
        return True

    def built(self, value: Any) -> Any:
        return current_limits.get().made(value)

    def joined(self, *values: Any) -> str:
        return self.concat([_written(value) for value in values])

    @staticmethod
    def concat(texts: Iterable[str]) -> str:
        texts = list(texts)
        current_limits.get().check_joined(texts)
        return str(current_limits.get().made("".join(texts)))


class _Watched(jinja2.visitor.NodeTransformer):
    """Puts calls into a template where it loops or builds something and would call nothing by itself."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.For:
        self.generic_visit(node)
        watch = _calling("watch", node)
        node.body.insert(0, jinja2.nodes.ExprStmt(watch, lineno=node.lineno))
        if node.test is not None:
            node.test = jinja2.nodes.And(watch, node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:
        self.generic_visit(node)
        return _calling("joined", node, *node.nodes)

    def visit_List(self, node: jinja2.nodes.List) -> jinja2.nodes.Node:
        return self._built(node, node.items)

    def visit_Dict(self, node: jinja2.nodes.Dict) -> jinja2.nodes.Node:
        return self._built(node, [pair.value for pair in node.items])

    def visit_Tuple(self, node: jinja2.nodes.Tuple) -> jinja2.nodes.Node:
        return self._built(node, node.items) if node.ctx == "load" else node

    def _built(self, node: jinja2.nodes.Expr, items: list[jinja2.nodes.Expr]) -> jinja2.nodes.Node:
        if all(isinstance(item, jinja2.nodes.Const) for item in items):
            return node  # no longer than the template itself
        self.generic_visit(node)
        return _calling("built", node, node)


def _calling(method: str, place: jinja2.nodes.Node, *args: jinja2.nodes.Expr) -> jinja2.nodes.Call:
    name = jinja2.nodes.EnvironmentAttribute(method, lineno=place.lineno)
    return jinja2.nodes.Call(name, list(args), [], None, None, lineno=place.lineno)


def _is_lookup(obj: Any) -> bool:
    """Whether a call gives what was there before."""
    return getattr(obj, "__name__", "") == "get" and isinstance(getattr(obj, "__self__", None), dict)


@jinja2.pass_context  # so that nothing is worked out while a template is compiled, where no limits are
def _finalize(context: jinja2.runtime.Context, value: Any) -> str:
    return _written(value)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else str(current_limits.get().made(str(value)))


def _within_limits(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter, or a test, that is looked at before it runs."""
    given = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            bound = inspect.signature(function).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        before, value, others = args[:given], args[given], args[given + 1 :]
        if name == "join" and not isinstance(value, (list, tuple, str)):
            value = list(value)
        current_limits.get().check_time()
        current_limits.get().check_filter(name, value, (*others, *kwargs.values()))
        return current_limits.get().made(function(*before, value, *others, **kwargs))

    return checked


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

    def __repr__(self) -> str:
        return "<Namespace>"  # what is in it may be itself


class _Dict:
    """`dict` for templates: without the type's own methods, which would change any dict that they are given."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise TemplateError(f"The chat template sets {name!r}: names in a namespace may not begin with '_'.")


# What JSON escapes to be ASCII, without the supplementary private-use planes: their characters stand for something else
# while a template works, and must come out as they are.
_NOT_ASCII = re.compile("[^\x00-\x7f\U000f0000-\U0010ffff]")


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # Jinja's own filter escapes HTML and sorts keys; models are trained on plain JSON.
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text) if ensure_ascii else text


def _raise(message: Any) -> None:
    raise TemplateError(str(message)[:_MAX_REASON])


def _now(pattern: str) -> str:
    if len(pattern) > _MAX_DATE_PATTERN:
        raise LimitPassed(f"The chat template writes a date with more than {_MAX_DATE_PATTERN} characters.")
    return _moment.get().strftime(pattern)


def _make_environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
        optimized=False,  # it works out constants while a template is compiled, where no limits are
        finalize=_finalize,
    )
    environment.filters["tojson"] = _to_json
    filters: dict[str, Any] = environment.filters
    tests: dict[str, Any] = environment.tests
    for known in (filters, tests):
        known.update({name: _within_limits(name, function) for name, function in known.items()})
    del environment.globals["lipsum"]
    environment.globals.update(raise_exception=_raise, strftime_now=_now, namespace=_Namespace, dict=_Dict())
    return environment


_environment = _make_environment()
