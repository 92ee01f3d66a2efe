"""Prompt families: who writes the conversation for a model, and why that one.

A family is a module of this package with a tuple FAMILIES, or one more entry in such a tuple; it is found here by
being there. `resolve` chooses for a model; the first rule that applies decides.
"""

from __future__ import annotations

import difflib
import os
import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from chatlocal.engine.errors import TemplateError, UnsupportedInput
from chatlocal.engine.families.control import chat_templates
from chatlocal.engine.families.family import Family
from chatlocal.engine.families.jinja import JinjaFamily
from chatlocal.engine.families.prompt import Markup, Prompt, Text
from chatlocal.engine.families.recognition import MadeFor, Model, closest

__all__ = ["Choice", "Family", "JinjaFamily", "Markup", "Prompt", "Text", "get", "names", "resolve"]

_VARIABLE = "CHATLOCAL_TEMPLATE"


@dataclass(frozen=True, slots=True)
class Choice:
    """The family for a model, the rule that chose it, and a sentence for a person to read."""

    family: Family
    rule: str
    why: str


def names() -> tuple[str, ...]:
    """The families that go by a name, sorted."""
    return tuple(sorted(_registry()))


def get(name: str) -> Family:
    """The family of this name. KeyError names the near ones."""
    families = _registry()
    if name not in families:
        near = difflib.get_close_matches(name, families, cutoff=0.4) or sorted(families)
        raise KeyError(f"There is no prompt family {name!r}; near ones: {', '.join(near)}.")
    return families[name]


def resolve(tokenizer: Any, config: Any, template: str | os.PathLike[str] | None = None) -> Choice:
    """The family for a model. `config` is the model's configuration or None, `template` what the user asked for.

    The first of these rules that applies: `template`, or else the environment variable CHATLOCAL_TEMPLATE (a family's
    name, a Jinja template or a path to one); a dedicated family, for models whose own template is wrong or absent; the
    tokenizer's chat template; a family by the model's type and name; ChatML. TemplateError when `template` is none.
    """
    wished = os.environ.get(_VARIABLE)
    if isinstance(template, os.PathLike):
        template = os.fspath(template)
    if template is not None and not isinstance(template, str):
        raise UnsupportedInput(f"template takes a family's name, a Jinja template or a path, got {template!r:.80}.")
    if template is not None and template != wished:
        return Choice(_given(tokenizer, template), "template", "The template was given.")
    if wished:
        return Choice(_given(tokenizer, wished), "environment", f"{_VARIABLE} is set.")
    model = Model.of(tokenizer, config)
    found = closest(_made_for(), model)
    if found is not None and found[1].dedicated:
        return Choice(get(found[0]), "dedicated", f"This is a model for the {found[0]} format: {found[1].because}.")
    if templates := chat_templates(tokenizer):
        return Choice(JinjaFamily(tokenizer, templates), "chat_template", "The tokenizer brings a chat template.")
    what = f"type {model.type or 'unknown'!r}" + (f" and name {model.name!r}" if model.name else "")
    if found is not None:
        why = f"The tokenizer brings no chat template, and a model of {what} goes with the {found[0]} format."
        return Choice(get(found[0]), "model_type", why)
    why = f"The tokenizer brings no chat template, and for a model of {what} no format is known."
    return Choice(get("chatml"), "fallback", why)


def _given(tokenizer: Any, template: str) -> Family:
    if template in _registry():
        return get(template)
    if "{{" in template or "{%" in template:
        return JinjaFamily(tokenizer, template)
    if os.path.isfile(template):
        return JinjaFamily(tokenizer, _read(template))
    near = difflib.get_close_matches(template, _registry(), cutoff=0.4) or names()
    raise TemplateError(
        f"The template {template!r} is neither a family's name, nor a Jinja template, nor a file: near names are"
        f" {', '.join(near)}."
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"The template in {path} cannot be read as UTF-8 text: {error}") from error


@cache
def _made_for() -> tuple[tuple[str, MadeFor], ...]:
    return tuple((name, models) for name, family in _registry().items() for models in getattr(family, "made_for", ()))


@cache
def _registry() -> dict[str, Family]:
    modules = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {family.name: family for module in modules for family in getattr(module, "FAMILIES", ())}
