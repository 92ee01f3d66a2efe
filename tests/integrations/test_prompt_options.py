"""Options of the prompt family through both front ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage

from chatlocal import ChatLocal, LocalLLM
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import UnsupportedInput, UnsupportedRole
from tests.scripted import backend_of, scripted_engine


def ask_chat_local(engine: Engine, own: dict[str, Any], call: dict[str, Any], system: str = "") -> None:
    messages = [("system", system), ("human", "Hi")] if system else [("human", "Hi")]
    ChatLocal(engine=engine, **own).invoke(messages, **call)


def ask_local_llm(engine: Engine, own: dict[str, Any], call: dict[str, Any], system: str = "") -> None:
    messages = [ChatMessage(role="system", content=system)] if system else []
    LocalLLM(engine=engine, **own).chat([*messages, ChatMessage(role="user", content="Hi")], **call)


both = pytest.mark.parametrize("ask", [ask_chat_local, ask_local_llm])
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
ON = {"chat_template_kwargs": {"enable_thinking": True}}
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"


def prompt_of(engine: Engine) -> str:
    return str(engine.tokenizer.decode(backend_of(engine).requests[-1].prompt_ids))


@both
@pytest.mark.parametrize(
    ("own", "call", "empty"), [({}, {}, False), (OFF, {}, True), ({}, OFF, True), (OFF, ON, False)]
)
def test_options_reach_the_family_and_the_calls_win(
    ask: Callable[..., None], own: dict[str, Any], call: dict[str, Any], empty: bool
) -> None:
    engine = scripted_engine("Hello", template="qwen3")
    ask(engine, own, call)
    assert prompt_of(engine).endswith(EMPTY_THOUGHT) == empty


@both
def test_a_system_text_is_merged_where_it_has_no_place_unless_that_is_not_wanted(ask: Callable[..., None]) -> None:
    engine = scripted_engine("Hello", template="gemma")
    ask(engine, {}, {}, "Be brief.")
    assert "user\nBe brief.\n\nHi<" in prompt_of(engine)
    with pytest.raises(UnsupportedRole, match="gemma"):
        ask(engine, {"chat_template_kwargs": {"merge_system": False}}, {}, "Be brief.")


@both
@pytest.mark.parametrize(
    ("value", "named"),
    [({"no_such": 1}, "no_such"), ({"timeout": 1}, "timeout"), ({"sampling": 1}, "sampling"), ("x", "takes a dict")],
)
def test_what_is_no_option_is_refused_by_name(ask: Callable[..., None], value: Any, named: str) -> None:
    engine = scripted_engine("Hello", template="qwen3")
    with pytest.raises(UnsupportedInput, match=named):
        ask(engine, {}, {"chat_template_kwargs": value})
    assert backend_of(engine).requests == []
