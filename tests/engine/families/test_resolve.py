from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from chatlocal.engine import families
from chatlocal.engine.errors import TemplateError
from tests.tiny import tiny_tokenizer

CONFIG = SimpleNamespace(model_type="llama")
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(autouse=True)
def _no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHATLOCAL_TEMPLATE", raising=False)


def test_names_and_near_names() -> None:
    assert {"chatml", "default"} <= set(families.names())
    assert families.get("chatml").name == "chatml"
    with pytest.raises(KeyError, match="near ones: chatml"):
        families.get("chatlm")


def test_the_tokenizers_template_comes_before_chatml() -> None:
    choice = families.resolve(tiny_tokenizer(), CONFIG)
    assert (choice.family.name, choice.rule) == ("jinja", "chat_template")


def test_without_a_template_it_is_chatml_and_says_why() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    choice = families.resolve(tokenizer, CONFIG)
    assert (choice.family, choice.rule) == (families.get("chatml"), "fallback")
    assert "llama" in choice.why


def test_what_the_user_gives_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLOCAL_TEMPLATE", "chatml")
    choice = families.resolve(tiny_tokenizer(), CONFIG)
    assert (choice.family.name, choice.rule) == ("chatml", "environment")
    choice = families.resolve(tiny_tokenizer(), CONFIG, template="A:{{ messages[0].content }}")
    assert (choice.family.render(HI).text, choice.rule) == ("A:Hi", "template")


def test_a_template_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("文:{{ messages[0].content }}", encoding="utf-8")
    assert families.resolve(tiny_tokenizer(), None, template=str(path)).family.render(HI).text == "文:Hi"


@pytest.mark.parametrize("template", ["chatlm", "no/such/file.jinja", "x" * 5000])
def test_a_template_that_is_nothing_is_an_error(template: str) -> None:
    with pytest.raises(TemplateError, match="neither a family's name, nor a Jinja template, nor a file"):
        families.resolve(tiny_tokenizer(), CONFIG, template=template)


def test_named_templates() -> None:
    tokenizer = tiny_tokenizer()
    named = {"default": "plain {{ messages[0].content }}", "tool_use": "tools {{ tools[0].function.name }}"}
    for templates in (named, [{"name": name, "template": text} for name, text in named.items()]):
        tokenizer.chat_template = templates
        family = families.resolve(tokenizer, CONFIG).family
        assert family.render(HI).text == "plain Hi"
        assert family.render(HI, [{"name": "f"}]).text == "tools f"
        assert family.renders_tools


def test_named_templates_without_a_default_are_an_error() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = {"rag": "x"}
    with pytest.raises(TemplateError, match="rag"):
        families.resolve(tokenizer, CONFIG)
