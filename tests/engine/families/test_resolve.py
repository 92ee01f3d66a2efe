from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    with pytest.raises(KeyError, match=r"near ones: .*chatml"):
        families.get("chatlm")


def test_the_readme_names_every_family() -> None:
    readme = Path(__file__).parents[3] / "README.md"
    if not readme.is_file():
        pytest.skip("the README is not shipped with the tests")
    table = readme.read_text("utf-8").partition("## Prompts")[2].partition("\n## ")[0]
    assert [name for name in families.names() if f"`{name}`" not in table] == []


def test_the_tokenizers_template_comes_before_chatml() -> None:
    choice = families.resolve(tiny_tokenizer(), CONFIG)
    assert (choice.family.name, choice.rule) == ("jinja", "chat_template")


def test_without_a_template_it_is_chatml_and_says_why() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    choice = families.resolve(tokenizer, CONFIG)
    assert (choice.family, choice.rule) == (families.get("chatml"), "fallback")
    assert "llama" in choice.why


@pytest.mark.parametrize(
    ("family", "rule", "facts"),
    [
        ("qwen", "dedicated", {"model_type": "qwen"}),
        ("chatglm-6b", "dedicated", {"model_type": "chatglm", "vocab_size": 130528}),
        ("chatglm2", "dedicated", {"model_type": "chatglm", "vocab_size": 65024}),
        ("chatglm3", "dedicated", {"model_type": "chatglm", "vocab_size": 65024, "_name_or_path": "x/ChatGLM3-6B"}),
        ("codegeex2", "dedicated", {"model_type": "chatglm", "vocab_size": 65024, "_name_or_path": "x/codegeex2-6b"}),
        ("glm4", "model_type", {"model_type": "chatglm", "vocab_size": 151552}),
        ("llama2", "model_type", {"model_type": "llama", "_name_or_path": "meta-llama/Llama-2-7b-chat-hf"}),
        ("llama3", "model_type", {"model_type": "llama", "_name_or_path": "Meta-Llama-3-8B-Instruct"}),
        ("llama3.1", "model_type", {"model_type": "llama", "_name_or_path": "Llama-3.1-8B-Instruct"}),
        ("vicuna", "model_type", {"model_type": "llama", "_name_or_path": "lmsys/vicuna-7b-v1.5"}),
        ("yi", "model_type", {"model_type": "llama", "_name_or_path": "01-ai/Yi-34B-Chat"}),
        ("baichuan", "model_type", {"model_type": "baichuan", "vocab_size": 64000}),
        ("baichuan2", "model_type", {"model_type": "baichuan", "vocab_size": 125696}),
        ("qwen2", "model_type", {"model_type": "qwen2", "_name_or_path": "Qwen/Qwen1.5-7B-Chat"}),
        ("qwen2.5", "model_type", {"model_type": "qwen2", "_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}),
        ("qwen3-thinking-2507", "model_type", {"model_type": "qwen3", "_name_or_path": "Qwen3-4B-Thinking-2507"}),
        ("deepseek-r1-distill", "model_type", {"model_type": "qwen2", "_name_or_path": "DeepSeek-R1-Distill-Qwen-7B"}),
        ("phi3.5", "model_type", {"model_type": "phi3", "_name_or_path": "microsoft/Phi-3.5-mini-instruct"}),
        ("gemma3", "model_type", {"model_type": "gemma3_text"}),
        ("falcon", "model_type", {"model_type": "falcon"}),
        ("chatml", "fallback", {"model_type": "llama", "_name_or_path": "somebody/model"}),
    ],
)
def test_without_a_template_type_and_name_decide(family: str, rule: str, facts: dict[str, Any]) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    choice = families.resolve(tokenizer, SimpleNamespace(**facts))
    assert (choice.family.name, choice.rule) == (family, rule)
    assert family in choice.why or rule == "fallback"


def test_a_dedicated_family_goes_before_the_tokenizers_template() -> None:
    choice = families.resolve(tiny_tokenizer(), SimpleNamespace(model_type="chatglm", vocab_size=130528))
    assert (choice.family.name, choice.rule) == ("chatglm-6b", "dedicated")
    choice = families.resolve(tiny_tokenizer(), SimpleNamespace(model_type="llama", _name_or_path="Llama-2-7b-chat"))
    assert (choice.family.name, choice.rule) == ("jinja", "chat_template")


def test_role_tokens_tell_chatglm3_from_chatglm2() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|user|>"]})
    choice = families.resolve(tokenizer, SimpleNamespace(model_type="chatglm", vocab_size=65024))
    assert (choice.family.name, choice.rule) == ("chatglm3", "dedicated")


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
