"""max_thinking_tokens through both front ends: as a field and with a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import AddedToken

from chatlocal import ChatLocal, LocalLLM
from chatlocal.engine import Engine
from chatlocal.engine.errors import UnsupportedInput
from tests.integrations.llama_index_calls import CHAT, COMPLETE, ask, hello
from tests.scripted import ScriptedBackend, backend_of, spell
from tests.tiny import CHATML, tiny_tokenizer

FRONT_ENDS = (ChatLocal, LocalLLM)
FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}


def thinking_engine() -> Engine:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in ("<think>", "</think>")])
    tokenizer.chat_template = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    return Engine(None, tokenizer, backend=ScriptedBackend(spell("hm</think>{}", tokenizer)))


def limit(engine: Engine) -> Any:
    spec = backend_of(engine).requests[-1].constraint_spec
    return None if spec is None else json.loads(spec.source)["limit"]


async def test_chat_local_takes_it_as_a_field_and_with_a_call() -> None:
    engine = thinking_engine()
    model = ChatLocal(engine=engine, max_thinking_tokens=7)
    assert model.invoke("hi").additional_kwargs["reasoning_content"] == "hm"
    assert limit(engine) == 7
    await model.ainvoke("hi", max_thinking_tokens=0)
    assert limit(engine) == 0
    list(model.bind(max_thinking_tokens=3).stream("hi"))
    assert limit(engine) == 3
    ChatLocal(engine=engine).invoke("hi")
    assert limit(engine) is None
    ChatLocal(engine=engine, max_tokens=41).invoke("hi", response_format=FORM)
    assert limit(engine) == 19
    model.with_structured_output({"type": "object"}).invoke("hi")
    assert limit(engine) == 7
    assert model._identifying_params["max_thinking_tokens"] == 7


@pytest.mark.parametrize("endpoint", [*CHAT, *COMPLETE])
async def test_local_llm_takes_it_as_a_field_and_with_a_call(endpoint: str) -> None:
    engine = thinking_engine()
    llm = LocalLLM(engine=engine, max_thinking_tokens=7)
    await ask(llm, endpoint, hello(endpoint))
    assert limit(engine) == 7
    await ask(llm, endpoint, hello(endpoint), max_thinking_tokens=0)
    assert limit(engine) == 0
    await ask(LocalLLM(engine=engine, max_tokens=41), endpoint, hello(endpoint), response_format=FORM)
    assert limit(engine) == 19


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_what_is_no_count_is_refused_at_once(front_end: Any) -> None:
    with pytest.raises(UnsupportedInput, match="max_thinking_tokens must be between 0"):
        front_end(engine=thinking_engine(), max_thinking_tokens=-1)
