"""Wrong arguments end in an error of ours that says what was wrong, whatever they are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.prompts import PromptTemplate

from chatlocal import ChatLocal, Engine, LocalLLM
from chatlocal.engine.errors import ChatLocalError, ModelNotFound, TemplateError, UnsupportedInput
from tests.scripted import scripted_engine

ENGINE = scripted_engine("Hi")
HI = [{"role": "user", "content": "Hi"}]
ANYTHING: Any = {"type": "object"}


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: Engine("some/model", "some/tokenizer"), UnsupportedInput, "got str and str"),
        (lambda: Engine(None, None), UnsupportedInput, "Engine.load"),
        (lambda: Engine.load(devcie="cpu"), UnsupportedInput, "devcie.*device"),
        (lambda: Engine.load("https://huggingface.co/Qwen/Qwen3-4B"), ModelNotFound, "pass the id.*'Qwen/Qwen3-4B'"),
        (lambda: Engine.load("x" * 5000), ModelNotFound, "cannot be the name of a model"),
        (lambda: ENGINE.generate(HI, spec="object"), UnsupportedInput, "spec takes"),
        (lambda: ENGINE.generate(HI, sampling={"temperature": 0}), UnsupportedInput, "sampling takes"),
        (lambda: ENGINE.render(HI, tools=[5]), UnsupportedInput, "got: 5"),
        (
            lambda: ENGINE.generate(HI, tools=[{"name": "f"}], tool_choice="g"),
            UnsupportedInput,
            "asks for .g. and the tools are f",
        ),
        (lambda: ENGINE.render(HI, tools=5), UnsupportedInput, "Tools come as a list"),
        (lambda: ENGINE.render([{**HI[0], "name": 5}]), UnsupportedInput, "name of a message"),
        (lambda: ENGINE.render([{"role": "assistant", "tool_calls": 5}]), UnsupportedInput, "list of calls"),
        (
            lambda: ENGINE.render([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"a": {1, 2}}}]}]),
            UnsupportedInput,
            "JSON cannot hold the arguments",
        ),
        (lambda: ENGINE.render(HI, tools=[{"name": "f", "parameters": "x"}]), UnsupportedInput, "JSON Schema"),
        (lambda: pickle.dumps(ENGINE), UnsupportedInput, "pickled"),
        (lambda: scripted_engine("Hi", template=5), UnsupportedInput, "template takes"),
        (lambda: scripted_engine("Hi", template=Path("/no/file")), TemplateError, "/no/file"),
        (lambda: ChatLocal(engine=ENGINE, temperature=-1), UnsupportedInput, "temperature"),
        (lambda: ChatLocal(engine=ENGINE, max_tokens=0), UnsupportedInput, "max_tokens"),
        (lambda: ChatLocal(engine=ENGINE).get_num_tokens("\ud800"), UnsupportedInput, "surrogate"),
        (
            lambda: LocalLLM(engine=ENGINE).structured_predict(ANYTHING, PromptTemplate("x")),
            UnsupportedInput,
            "Pydantic model class",
        ),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], kind: type[ChatLocalError], said: str) -> None:
    with pytest.raises(kind, match=said):
        call()


@pytest.mark.parametrize("written", [b"\xff\xfe\x00", "\ufeffQ: {{ messages[0].content }}".encode()])
def test_template_files_that_are_no_text_and_byte_order_marks(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(written)
    if written.startswith(b"\xff"):
        with pytest.raises(TemplateError, match="cannot be read as UTF-8"):
            scripted_engine("Hi", template=path)
    else:
        assert scripted_engine("Hi", template=path).render(HI).text == "Q: Hi"


def test_an_empty_environment_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "DEVICE", "DTYPE", "TEMPLATE"):
        monkeypatch.setenv(f"CHATLOCAL_{name}", "")
    model = ChatLocal()
    assert (model.model, model.device, model.dtype, model.template) == (None, None, None, None)


def test_a_template_may_be_a_path_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("Q: {{ messages[0].content }}", encoding="utf-8")
    assert scripted_engine("Hi", template=path).render(HI).text == "Q: Hi"
    assert ChatLocal(template=path).template == str(path)
    assert LocalLLM(template=path).template == str(path)
