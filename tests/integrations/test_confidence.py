"""The confidence in each value of a structured answer, as both frameworks hand it over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from llama_index.core.llms import ChatMessage
from pydantic import BaseModel

from chatlocal import ChatLocal, LocalLLM
from chatlocal.engine.engine import Engine
from tests.engine.runtime.running import tiny_engine


class Order(BaseModel):
    size: Literal["small", "medium", "large"]
    count: Literal[1, 2, 3]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with tiny_engine() as engine:
        yield engine


def check(confidence: Any) -> None:
    assert list(confidence) == ["/size", "/count", ""]
    assert 1 / 3 <= confidence["/size"] < 1
    assert confidence[""] == pytest.approx(confidence["/size"] * confidence["/count"])


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchains_raw_message_has_it(engine: Engine, method: Any) -> None:
    chain = ChatLocal(engine=engine).with_structured_output(Order, method=method, include_raw=True)
    result = chain.invoke("one small one")
    assert isinstance(result["parsed"], Order)
    check(result["raw"].response_metadata["confidence"])


async def test_it_comes_with_the_last_chunk_of_a_stream(engine: Engine) -> None:
    chain = ChatLocal(engine=engine).with_structured_output(Order, include_raw=True)
    told = [part["raw"].response_metadata.get("confidence") async for part in chain.astream("?") if "raw" in part]
    check(told[-1])
    assert not any(told[:-1])


def test_llama_indexs_structured_llm_has_it(engine: Engine) -> None:
    response = LocalLLM(engine=engine).as_structured_llm(Order).chat([ChatMessage(content="one small one")])
    assert isinstance(response.raw, Order)
    check(response.additional_kwargs["confidence"])


def test_prose_has_none(engine: Engine) -> None:
    assert "confidence" not in ChatLocal(engine=engine, max_tokens=5).invoke("?").response_metadata
