"""ChatLocal over real, random weights: loading by folder, one engine for all, batches, seeds and enforced schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from langchain_core.runnables import RunnableParallel
from pydantic import BaseModel

from chatlocal import ChatLocal
from chatlocal.engine.errors import BudgetTooSmall, EngineBusy, ModelNotFound
from tests.tiny import save_tiny


class Dog(BaseModel):
    color: Literal["brown", "black", "白色"]
    alive: bool
    friends: list[Literal["cat", "fox"]] | None = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = save_tiny(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)
    yield folder
    chat(folder).engine.close()


def chat(folder: Path, **settings: object) -> ChatLocal:
    return ChatLocal(str(folder), dtype="float32", device="cpu", **settings)  # type: ignore[arg-type]


def test_objects_of_the_same_settings_share_an_engine(folder: Path) -> None:
    assert chat(folder).engine is chat(folder, temperature=1).engine


def test_a_name_that_is_not_there_fails_at_the_first_call(tmp_path: Path) -> None:
    model = ChatLocal(str(tmp_path / "nothing"))
    with pytest.raises(ModelNotFound, match="nothing"):
        model.invoke("hi")


async def test_alone_streamed_batched_and_async_agree(folder: Path) -> None:
    model = chat(folder, max_tokens=16)
    texts = [f"question {number}" for number in range(6)]
    alone = [model.invoke(text).content for text in texts]
    assert len(set(alone)) > 1
    assert [reply.content for reply in model.batch(texts)] == alone
    assert [reply.content for reply in await model.abatch(texts)] == alone
    assert ["".join(chunk.text for chunk in model.stream(text)) for text in texts] == alone


def test_a_seed_repeats_and_another_differs(folder: Path) -> None:
    model = chat(folder, temperature=1.0, max_tokens=16)
    assert model.invoke("hi", seed=1).content == model.invoke("hi", seed=1).content
    assert model.invoke("hi", seed=1).content != model.invoke("hi", seed=2).content


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_enforced(folder: Path, seed: int) -> None:
    dogs = chat(folder, temperature=1.5, seed=seed, max_tokens=200).with_structured_output(Dog)
    assert isinstance(dogs.invoke("Who is it?"), Dog)
    values = list(dogs.stream("Who is it?"))
    assert values[-1] == dogs.invoke("Who is it?")


def test_a_batch_of_different_schemas(folder: Path) -> None:
    model = chat(folder, max_tokens=200)
    schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}
    chains = [model.with_structured_output(Dog), model.with_structured_output(schema)] * 3
    answers = RunnableParallel({str(place): chain for place, chain in enumerate(chains)}).invoke("Well?")
    assert [type(answer) for answer in answers.values()] == [Dog, dict] * 3


def test_a_json_object_is_enforced(folder: Path) -> None:
    reply = chat(folder, max_tokens=40).invoke("?", response_format={"type": "json_object"})
    assert reply.text.startswith("{")


def test_a_legacy_function_is_enforced(folder: Path) -> None:
    function = {"name": "Dog", "parameters": Dog.model_json_schema()}
    reply = chat(folder, max_tokens=200).invoke("Who?", functions=[function], function_call={"name": "Dog"})
    assert isinstance(Dog.model_validate_json(reply.additional_kwargs["function_call"]["arguments"]), Dog)


class Cat(BaseModel):
    lives: Literal[7, 9]


@pytest.mark.parametrize("seed", range(4))
async def test_a_demanded_call_fits_one_of_the_tools(folder: Path, seed: int) -> None:
    model = chat(folder, temperature=1.5, seed=seed, max_tokens=200)
    bound = model.bind_tools([Dog, Cat], tool_choice="any")
    chunks = list(bound.stream("Who is it?"))
    whole = sum(chunks[1:], start=chunks[0])
    for reply in (bound.invoke("Who is it?"), await bound.ainvoke("Who is it?"), whole):
        [call] = reply.tool_calls
        {"Dog": Dog, "Cat": Cat}[call["name"]].model_validate(call["args"])
        assert reply.invalid_tool_calls == []
        assert reply.response_metadata["finish_reason"] == "tool_calls"
    cats = model.bind_tools([Dog, Cat], tool_choice="Cat").invoke("Who is it?")
    assert [call["name"] for call in cats.tool_calls] == ["Cat"]
    assert isinstance(model.with_structured_output(Dog, method="function_calling").invoke("Who?"), Dog)


def test_a_demanded_call_is_whole_however_few_tokens_it_may_have(folder: Path) -> None:
    with pytest.raises(BudgetTooSmall) as refused:
        chat(folder, max_tokens=12).bind_tools([Dog], tool_choice="any").invoke("Who is it?")
    least = int(re.findall(r"has (\d+) tokens", str(refused.value))[0])
    for limit in (least, least + 1, least + 9):
        reply = chat(folder, max_tokens=limit).bind_tools([Dog], tool_choice="any").invoke("Who is it?")
        assert reply.invalid_tool_calls == []
        (call,) = reply.tool_calls
        Dog(**call["args"])


def test_functions_that_are_required_are_called(folder: Path) -> None:
    functions = [{"name": kind.__name__, "parameters": kind.model_json_schema()} for kind in (Dog, Cat)]
    reply = chat(folder, functions_required=True, max_tokens=200).invoke("Who?", functions=functions)
    called = reply.additional_kwargs["function_call"]
    {"Dog": Dog, "Cat": Cat}[called["name"]].model_validate_json(called["arguments"])


def test_logprobs_are_log_probabilities(folder: Path) -> None:
    reply = chat(folder, max_tokens=5).invoke("hi", logprobs=True, top_logprobs=3)
    content = reply.response_metadata["logprobs"]["content"]
    assert reply.usage_metadata is not None
    assert len(content) == reply.usage_metadata["output_tokens"]
    for token in content:
        assert token["logprob"] <= 0
        assert token["logprob"] == token["top_logprobs"][0]["logprob"]  # greedy
        assert len(token["top_logprobs"]) == 3


def test_usage_says_how_much_of_a_prompt_was_in_the_cache(folder: Path) -> None:
    llm = chat(folder, prefix_reuse=True, max_tokens=8, max_batch=3)
    question = [("system", "You are a dog called Harry."), ("human", "Who are you? " * 5)]
    first = llm.invoke(question)
    again = llm.invoke([*question, ("ai", first.text), ("human", "And now?")])
    streamed = list(llm.stream([*question, ("ai", first.text), ("human", "And then?")]))
    assert first.usage_metadata is not None
    assert again.usage_metadata is not None
    prompt = first.usage_metadata["input_tokens"]
    assert "input_token_details" not in first.usage_metadata
    assert prompt <= again.usage_metadata["input_token_details"]["cache_read"] < again.usage_metadata["input_tokens"]
    assert streamed[-1].usage_metadata is not None
    # What the two share goes on to the word in which they differ.
    shared = streamed[-1].usage_metadata["input_token_details"]["cache_read"]
    assert shared > again.usage_metadata["input_token_details"]["cache_read"]
    llm.engine.close()


def test_nothing_is_read_from_the_cache_where_that_is_turned_off(folder: Path) -> None:
    llm = chat(folder, prefix_reuse=False, max_tokens=4)
    for _ in range(2):
        usage = llm.invoke("Hello").usage_metadata
        assert usage is not None
        assert "input_token_details" not in usage
    llm.engine.close()


def test_a_full_queue_is_an_error_with_the_number(folder: Path) -> None:
    llm = chat(folder, max_batch=1, max_waiting=0, cache_tokens=2000, max_tokens=1500)
    stream = llm.stream("Hello")
    next(stream)
    with pytest.raises(EngineBusy, match="max_waiting"):
        llm.invoke("Hello again")
    llm.engine.close()
