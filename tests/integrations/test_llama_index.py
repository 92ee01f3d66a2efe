"""LocalLLM's endpoints over a scripted backend: what goes into the prompt and what comes out."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.types import BaseOutputParser, PydanticProgramMode

from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.runtime.backend import Request
from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import (
    CHAT,
    COMPLETE,
    HELLO,
    HELLO_PROMPT,
    STREAMS,
    ask,
    hello,
    prompts,
    text_of,
)
from tests.scripted import ScriptedBackend, backend_of, scripted_engine, spell
from tests.tiny import tiny_tokenizer


@pytest.mark.parametrize("endpoint", CHAT + COMPLETE)
async def test_every_endpoint_sends_the_same_prompt_and_gives_the_whole_answer(endpoint: str) -> None:
    llm = LocalLLM(engine=scripted_engine("Harry is brown."))
    responses = await ask(llm, endpoint, hello(endpoint))
    assert text_of(responses[-1]) == "Harry is brown."
    assert prompts(llm) == [HELLO_PROMPT]


@pytest.mark.parametrize("endpoint", CHAT + COMPLETE)
async def test_usage_counts_ids_and_raw_is_json(endpoint: str) -> None:
    answer = "The dog is called Harry."
    llm = LocalLLM(engine=scripted_engine(answer, name="tiny"))
    last = (await ask(llm, endpoint, hello(endpoint)))[-1]
    prompt_tokens = len(tiny_tokenizer().encode(HELLO_PROMPT, add_special_tokens=False))
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": len(spell(answer)),
        "total_tokens": prompt_tokens + len(spell(answer)),
    }
    assert last.raw == {"usage": usage, "finish_reason": "stop", "model": "tiny"}
    assert json.loads(json.dumps(last.raw)) == last.raw
    assert {name: last.additional_kwargs[name] for name in usage} == usage


@pytest.mark.parametrize("endpoint", STREAMS)
async def test_streams_are_cumulative_with_deltas(endpoint: str) -> None:
    answer = "Harry likes 🍕 and café."
    responses = await ask(LocalLLM(engine=scripted_engine(answer)), endpoint, hello(endpoint))
    assert len(responses) > 3
    so_far = ""
    for response in responses:
        so_far += response.delta
        assert text_of(response) == so_far
        assert "\ufffd" not in so_far
    assert so_far == answer
    assert [response.raw is not None for response in responses] == [False] * (len(responses) - 1) + [True]


@pytest.mark.parametrize("endpoint", ["chat", "complete"])
async def test_a_whole_answer_has_no_delta(endpoint: str) -> None:
    (response,) = await ask(LocalLLM(engine=scripted_engine("Hi")), endpoint, hello(endpoint))
    assert response.delta is None


@pytest.mark.parametrize("endpoint", CHAT + COMPLETE)
@pytest.mark.parametrize("where", ["call", "object"])
async def test_stop_ends_the_answer_and_the_work(endpoint: str, where: str) -> None:
    before, after = "The dog. ", "Question: " + "what is the answer? " * 50
    engine = scripted_engine(before + after)
    llm = LocalLLM(engine=engine, stop="Question:" if where == "object" else "never said")
    kwargs = {"stop": ["Question:"]} if where == "call" else {}
    responses = await ask(llm, endpoint, hello(endpoint), **kwargs)
    assert text_of(responses[-1]) == before
    assert responses[-1].raw["finish_reason"] == "stop"
    backend = backend_of(engine)
    assert backend.steps <= len(spell(before + "Question:")) + 1
    assert backend.steps < len(spell(before + after)) / 4


async def test_an_empty_stop_of_the_call_means_none() -> None:
    llm = LocalLLM(engine=scripted_engine("one two"), stop=["one"])
    assert llm.complete("Hello", stop=[]).text == "one two"
    assert llm.complete("Hello").text == ""


def test_max_tokens_and_sampling_reach_the_backend() -> None:
    llm = LocalLLM(engine=scripted_engine("one two three four"), temperature=0.5, max_tokens=3, top_k=7)
    response = llm.complete("Hello", seed=11, top_p=0.5, max_new_tokens=2)
    sampling = backend_of(llm.engine).requests[0].sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.top_k) == (0.5, 2, 7)
    assert (sampling.seed, sampling.top_p) == (11, 0.5)
    assert response.raw["finish_reason"] == "length"
    assert response.raw["usage"]["completion_tokens"] == 2
    assert llm.complete("Hello").raw["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("endpoint", CHAT + COMPLETE)
async def test_system_prompt_is_applied_once_everywhere(endpoint: str) -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"), system_prompt="Be brief.")
    await ask(llm, endpoint, hello(endpoint))
    assert prompts(llm) == ["<|im_start|>system\nBe brief.<|im_end|>\n" + HELLO_PROMPT]


async def test_system_prompt_is_not_repeated_by_predict() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"), system_prompt="Be brief.")
    template = PromptTemplate("Say {what}")
    assert llm.predict(template, what="hi") == await llm.apredict(template, what="hi") == "Hi"
    assert "".join(llm.stream(template, what="hi")) == "Hi"
    assert len(set(prompts(llm))) == 1
    assert prompts(llm)[0].count("Be brief.") == 1


def test_system_prompt_stands_before_another_system_message_as_in_the_core() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"), system_prompt="Be brief.")
    llm.chat([ChatMessage(role="system", content="Context: Rex is a cat."), *HELLO])
    systems = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>system\nContext: Rex is a cat.<|im_end|>\n"
    assert prompts(llm) == [systems + HELLO_PROMPT]


@pytest.mark.parametrize("endpoint", COMPLETE)
async def test_query_wrapper_prompt_wraps_the_query_of_a_completion(endpoint: str) -> None:
    wrapper = PromptTemplate("Question: {query_str} Answer:")
    llm = LocalLLM(engine=scripted_engine("Hi"), query_wrapper_prompt=wrapper)
    await ask(llm, endpoint, "Hello")
    llm.chat(HELLO)
    assert prompts(llm) == [HELLO_PROMPT.replace("Hello", "Question: Hello Answer:"), HELLO_PROMPT]


@pytest.mark.parametrize("endpoint", COMPLETE)
async def test_a_formatted_prompt_goes_to_the_model_as_it_is(endpoint: str) -> None:
    raw = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nSure, "
    llm = LocalLLM(engine=scripted_engine("Hi"), system_prompt="Be brief.")
    await ask(llm, endpoint, raw, formatted=True)
    (request,) = backend_of(llm.engine).requests
    assert request.prompt_ids == tuple(tiny_tokenizer().encode(raw, add_special_tokens=False))
    assert request.prompt_ids[0] == 1  # <|im_start|> as the control token that it is
    assert request.stop_ids == {2}


def test_the_user_cannot_write_control_tokens_in_a_completion() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    llm.complete("Hello<|im_end|>")
    (request,) = backend_of(llm.engine).requests
    assert request.prompt_ids.count(2) == 1
    assert prompts(llm) == [HELLO_PROMPT.replace("Hello", "Hello<|im_end|>")]


@pytest.mark.parametrize("endpoint", COMPLETE)
async def test_completion_to_prompt_writes_the_whole_prompt(endpoint: str) -> None:
    llm = LocalLLM(
        engine=scripted_engine("Hi"),
        completion_to_prompt=lambda completion: f"<|im_start|>Q {completion} A",
        system_prompt="Be brief.",
    )
    await ask(llm, endpoint, "Hello")
    assert prompts(llm) == ["<|im_start|>Q Be brief.\n\nHello A"]
    assert backend_of(llm.engine).requests[0].prompt_ids[0] == 1


@pytest.mark.parametrize("endpoint", CHAT + COMPLETE)
async def test_messages_to_prompt_writes_the_whole_prompt(endpoint: str) -> None:
    def write(messages: Any) -> str:
        return "".join(f"<|im_start|>[{message.role.value}] {message.content} " for message in messages)

    llm = LocalLLM(engine=scripted_engine("Hi"), messages_to_prompt=write, system_prompt="Be brief.")
    await ask(llm, endpoint, hello(endpoint))
    assert prompts(llm) == ["<|im_start|>[system] Be brief. <|im_start|>[user] Hello "]


class Shout(BaseOutputParser):
    def parse(self, output: str) -> str:
        return output.upper()

    def format(self, query: str) -> str:
        return query + " Whisper."


async def test_output_parser_works_in_predict_as_the_core_does_it() -> None:
    llm = LocalLLM(engine=scripted_engine("hi there"), output_parser=Shout())
    assert llm.predict(PromptTemplate("Hello")) == await llm.apredict(PromptTemplate("Hello")) == "HI THERE"
    assert prompts(llm) == [HELLO_PROMPT.replace("Hello", "Hello Whisper.")] * 2
    assert llm.complete("Hello").text == "hi there"


@pytest.mark.parametrize("endpoint", ["chat", "complete", "astream_chat", "stream_complete"])
async def test_logprobs_when_asked(endpoint: str) -> None:
    llm = LocalLLM(engine=scripted_engine("dog"))
    last = (await ask(llm, endpoint, hello(endpoint), logprobs=True, top_logprobs=2))[-1]
    ids = spell("dog")
    assert [position[0].token for position in last.logprobs] == [tiny_tokenizer().decode([id]) for id in ids]
    assert bytes(last.logprobs[0][0].bytes) == tiny_tokenizer().decode([ids[0]]).encode()
    # The scripted backend gives the chosen id -0.5 and the next one -1.5; top_logprobs counts the chosen id too.
    assert [[each.logprob for each in position] for position in last.logprobs] == [[-0.5, -1.5]] * len(ids)
    assert (await ask(llm, endpoint, hello(endpoint)))[-1].logprobs is None


def test_repr_and_the_settings_as_data() -> None:
    llm = LocalLLM("some/model", temperature=0.25, stop="x", token="secret-token", system_prompt="Be brief.")
    assert "some/model" in repr(llm)
    data = json.loads(llm.to_json())
    assert data["class_name"] == LocalLLM.class_name() == "LocalLLM"
    assert (data["model"], data["temperature"], data["stop"]) == ("some/model", 0.25, ["x"])
    assert "secret-token" not in repr(llm) + llm.to_json()
    again = LocalLLM.from_dict(llm.to_dict())
    assert again.to_dict() == llm.to_dict()
    assert pickle.loads(pickle.dumps(llm)).to_dict() == llm.to_dict()


def test_repr_over_an_engine_ends() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"), messages_to_prompt=str, completion_to_prompt=str)
    assert repr(llm).startswith("LocalLLM(")


def test_an_engine_is_not_lost_in_a_pickle() -> None:
    with pytest.raises(UnsupportedInput, match="pickled"):
        pickle.dumps(LocalLLM(engine=scripted_engine("Hi")))


def test_unknown_constructor_arguments_name_the_near_ones() -> None:
    with pytest.raises(UnsupportedInput, match=r"'temprature'.*temperature"):
        LocalLLM("some/model", temprature=0)
    with pytest.raises(UnsupportedInput, match=r"'max_new_tokens'.*max_tokens"):
        LocalLLM("some/model", max_new_tokens=1)


def test_values_out_of_range_are_refused_at_once() -> None:
    with pytest.raises(UnsupportedInput, match="top_p"):
        LocalLLM("some/model", top_p=1.5)


def test_engine_and_loading_options_exclude_each_other() -> None:
    with pytest.raises(UnsupportedInput, match="model, dtype"):
        LocalLLM("some/model", dtype="float32", engine=scripted_engine("Hi"))


def test_settings_load_one_engine_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[tuple[Any, dict[str, Any]]] = []
    engine = scripted_engine("Hi")

    def shared(model: Any, **options: Any) -> Engine:
        asked_for.append((model, options))
        return engine

    monkeypatch.setattr("chatlocal.integrations.llama_index.shared_engine", shared)
    llm = LocalLLM("some/model", dtype="float32", max_batch=2, temperature=0.5)
    assert asked_for == []
    assert llm.complete("Hello").text == "Hi"
    assert set(map(repr, asked_for)) == {repr(("some/model", {"dtype": "float32", "max_batch": 2}))}


def test_metadata_comes_from_the_engine() -> None:
    metadata = LocalLLM(engine=scripted_engine("Hi", name="tiny")).metadata
    assert metadata.context_window == 512  # the tiny tokenizer's model_max_length
    assert metadata.num_output == 256  # half of it, so that there is room for a prompt
    assert (metadata.is_chat_model, metadata.is_function_calling_model) == (True, True)
    assert (metadata.model_name, metadata.system_role) == ("tiny", MessageRole.SYSTEM)


def test_metadata_does_without_the_model_when_the_window_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(model: Any, **options: Any) -> Engine:
        pytest.fail("the model was loaded")

    monkeypatch.setattr("chatlocal.integrations.llama_index.shared_engine", shared)
    metadata = LocalLLM("some/model", context_window=4096, max_tokens=100).metadata
    assert (metadata.context_window, metadata.num_output, metadata.model_name) == (4096, 100, "some/model")
    assert LocalLLM("some/model", context_window=4096).metadata.num_output == 1024


def test_context_window_overrides_the_engine_for_planning() -> None:
    metadata = LocalLLM(engine=scripted_engine("Hi"), context_window=300, max_tokens=40).metadata
    assert (metadata.context_window, metadata.num_output) == (300, 40)


def test_the_program_mode_is_a_setting() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"), pydantic_program_mode=PydanticProgramMode.LLM)
    assert llm.pydantic_program_mode == "llm"


def test_token_type_ids_of_a_tokenizer_do_no_harm() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    assert "token_type_ids" in tokenizer("Hello")
    engine = Engine(None, tokenizer, backend=ScriptedBackend(spell("Hi")))
    llm = LocalLLM(engine=engine)
    assert llm.complete("Hello").text == llm.complete(HELLO_PROMPT, formatted=True).text == "Hi"
    assert prompts(llm) == [HELLO_PROMPT] * 2


def test_several_text_blocks_are_one_message() -> None:
    llm = LocalLLM(engine=scripted_engine("Hi"))
    llm.chat([ChatMessage(role="user", blocks=[TextBlock(text="Hel"), TextBlock(text="lo")])])
    assert prompts(llm) == [HELLO_PROMPT.replace("Hello", "Hel\nlo")]


def test_an_empty_answer_is_an_empty_text() -> None:
    def end(request: Request) -> list[int]:
        return [next(iter(request.stop_ids))]

    llm = LocalLLM(engine=scripted_engine(end))
    assert llm.chat(HELLO).message.content == ""
    assert llm.complete("Hello").text == ""
    assert [response.delta for response in llm.stream_complete("Hello")] == [""]
