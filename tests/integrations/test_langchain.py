"""ChatLocal over a scripted backend: what comes out, what may go in, and what it says about itself."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import MagicMock

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.exceptions import ContextOverflowError
from langchain_core.load import dumpd, dumps, load, loads
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, trim_messages
from langchain_core.runnables import ConfigurableField
from pydantic import SecretStr, ValidationError

from chatlocal import ChatLocal
from chatlocal.engine.errors import ContextOverflow, GenerationTimeout, UnsupportedInput
from chatlocal.engine.events import Finish, Reasoning, Text, Usage
from chatlocal.engine.messages import ChatMessage
from chatlocal.integrations import langchain as module
from tests.scripted import backend_of, scripted_engine, spell
from tests.tiny import tiny_tokenizer

ANSWER = "The dog is called Harry. 你好 🍕"


def chat(*answers: Any, **settings: Any) -> ChatLocal:
    return ChatLocal(engine=scripted_engine(*(answers or (ANSWER,))), **settings)


def sampling(model: ChatLocal) -> Any:
    return backend_of(model.engine).requests[-1].sampling


class TestAnswer:
    def test_is_the_new_text_alone_with_its_counts(self) -> None:
        model = chat()
        reply = model.invoke("hi")
        prompt = model.engine.count_tokens([ChatMessage("user", "hi")])
        assert isinstance(reply, AIMessage)
        assert reply.content == ANSWER
        assert reply.usage_metadata == {
            "input_tokens": prompt,
            "output_tokens": len(spell(ANSWER)),
            "total_tokens": prompt + len(spell(ANSWER)),
        }
        assert reply.response_metadata == {
            "model_name": model.engine.name,
            "model_provider": "chatlocal",
            "finish_reason": "stop",
        }

    def test_says_when_it_was_cut(self) -> None:
        reply = chat().invoke("hi", max_tokens=3)
        assert reply.response_metadata["finish_reason"] == "length"
        assert reply.usage_metadata is not None
        assert reply.usage_metadata["output_tokens"] == 3

    def test_streams_the_same_with_metadata_once(self) -> None:
        model = chat()
        chunks = list(model.stream("hi"))
        whole = model.invoke("hi")
        assert len(chunks) > 5
        assert "".join(chunk.text for chunk in chunks) == whole.content
        assert not any("\ufffd" in chunk.text for chunk in chunks)
        assert [bool(chunk.response_metadata) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert [chunk.usage_metadata is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert [chunk.chunk_position for chunk in chunks] == [None] * (len(chunks) - 1) + ["last"]
        total = sum(chunks[1:], start=chunks[0])
        assert isinstance(total, AIMessageChunk)
        assert total.response_metadata == whole.response_metadata
        assert total.usage_metadata == whole.usage_metadata

    async def test_is_the_same_in_all_four_ways(self) -> None:
        model = chat()
        texts = {
            str(model.invoke("hi").content),
            str((await model.ainvoke("hi")).content),
            "".join(chunk.text for chunk in model.stream("hi")),
            "".join([chunk.text async for chunk in model.astream("hi")]),
        }
        assert texts == {ANSWER}

    def test_keeps_reasoning_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = chat()
        events = [
            Reasoning("let me "),
            Reasoning("think"),
            Text("42"),
            Finish("stop", Usage(5, 4, reasoning=2, cached=3)),
        ]
        monkeypatch.setattr(model.engine, "stream", lambda *_, **__: (event for event in events))
        reply = model.invoke("hi")
        assert reply.content == "42"
        assert reply.additional_kwargs == {"reasoning_content": "let me think"}
        assert [block["type"] for block in reply.content_blocks] == ["reasoning", "text"]
        assert reply.usage_metadata is not None
        assert reply.usage_metadata["output_token_details"] == {"reasoning": 2}
        assert reply.usage_metadata["input_token_details"] == {"cache_read": 3}

    def test_comes_as_content_blocks_when_asked(self) -> None:
        reply = chat(output_version="v1").invoke("hi")
        assert reply.content == [{"type": "text", "text": ANSWER}]

    def test_batch_answers_each(self) -> None:
        model = chat(lambda request: request.prompt_ids)  # it repeats its prompt
        replies = model.batch([f"question {number}" for number in range(8)])
        assert [f"question {number}" in str(reply.content) for number, reply in enumerate(replies)] == [True] * 8

    def test_gives_logprobs_in_openais_shape(self) -> None:
        model = chat("Harry")
        content = model.invoke("hi", logprobs=True, top_logprobs=2).response_metadata["logprobs"]["content"]
        ids = spell("Harry")
        assert [bytes(token["bytes"]) for token in content] == [tiny_tokenizer().decode([id]).encode() for id in ids]
        assert "".join(token["token"] for token in content) == "Harry"
        assert {token["logprob"] for token in content} == {-0.5}
        assert [other["logprob"] for other in content[0]["top_logprobs"]] == [-0.5, -1.5]
        assert set(content[0]["top_logprobs"][0]) == {"token", "logprob", "bytes"}
        assert "logprobs" not in model.invoke("hi").response_metadata

    def test_logprobs_of_a_stream_come_once(self) -> None:
        chunks = list(chat("Harry").bind(logprobs=True).stream("hi"))
        assert [len(chunk.response_metadata.get("logprobs", {}).get("content", ())) for chunk in chunks[:-1]] == [0] * (
            len(chunks) - 1
        )
        assert [token["top_logprobs"] for token in chunks[-1].response_metadata["logprobs"]["content"]] == [[]] * len(
            spell("Harry")
        )


class TestSettings:
    def test_reach_the_backend(self) -> None:
        model = chat(
            temperature=0.7, max_tokens=9, top_p=0.9, top_k=5, min_p=0.1, repetition_penalty=1.1, seed=3,
            presence_penalty=0.2, frequency_penalty=0.3,
        )  # fmt: skip
        model.invoke("hi")
        used = sampling(model)
        assert (used.temperature, used.max_tokens, used.top_p, used.top_k, used.min_p) == (0.7, 9, 0.9, 5, 0.1)
        assert (used.repetition_penalty, used.seed) == (1.1, 3)
        assert (used.presence_penalty, used.frequency_penalty) == (0.2, 0.3)

    def test_of_a_call_win(self) -> None:
        model = chat(temperature=0.7, max_tokens=9)
        model.invoke("hi", temperature=0.2, top_k=7)
        assert (sampling(model).temperature, sampling(model).top_k, sampling(model).max_tokens) == (0.2, 7, 9)
        model.bind(seed=11).invoke("hi")
        assert (sampling(model).temperature, sampling(model).seed) == (0.7, 11)

    @pytest.mark.parametrize("run", ["invoke", "stream"])
    def test_unknown_ones_of_a_call_are_errors(self, run: str) -> None:
        model = chat()
        with pytest.raises(UnsupportedInput, match="This call does not take 'temprature': did you mean temperature"):
            list(getattr(model, run)("hi", temprature=0.3))
        with pytest.raises(UnsupportedInput, match="max_tokens"):
            list(getattr(model, run)("hi", max_new_tokens=3))
        assert backend_of(model.engine).requests == []

    async def test_unknown_ones_of_an_async_call_are_errors(self) -> None:
        with pytest.raises(UnsupportedInput, match="did you mean temperature"):
            await chat().ainvoke("hi", temprature=0.3)

    def test_unknown_ones_of_the_constructor_are_errors(self) -> None:
        with pytest.raises(UnsupportedInput, match="did you mean temperature"):
            ChatLocal(temprature=0.3)  # type: ignore[call-arg]
        with pytest.raises(ValidationError):
            ChatLocal.model_validate({"temprature": 0.3})

    def test_no_tools_are_fine(self) -> None:
        assert chat().invoke("hi", tools=[]).content == ANSWER

    def test_names_of_other_packages_are_taken(self) -> None:
        model = ChatLocal(model_name="some/where", stop_sequences="END", api_key="none")  # type: ignore[call-arg]
        assert (model.model, model.stop) == ("some/where", ["END"])
        assert ChatLocal("some/where").model == "some/where"
        with pytest.raises(UnsupportedInput, match="one setting"):
            ChatLocal("a", model_name="b")  # type: ignore[call-arg]

    def test_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CHATLOCAL_MODEL", "some/where")
        monkeypatch.setenv("CHATLOCAL_DEVICE", "cpu")
        monkeypatch.setenv("CHATLOCAL_DTYPE", "float32")
        monkeypatch.setenv("CHATLOCAL_TEMPLATE", "chatml")
        model = ChatLocal()
        assert (model.model, model.device, model.dtype, model.template) == ("some/where", "cpu", "float32", "chatml")
        assert ChatLocal("else/where").model == "else/where"
        given = ChatLocal(engine=scripted_engine(ANSWER))
        assert (given.model, given.device) == (None, None)

    def test_for_loading_contradict_a_given_engine(self) -> None:
        with pytest.raises(UnsupportedInput, match="leave out model, device"):
            ChatLocal("some/where", engine=scripted_engine(ANSWER), device="cpu")

    def test_can_be_configured_at_run_time(self) -> None:
        model = chat()
        flexible = model.configurable_fields(max_tokens=ConfigurableField("max_tokens"))
        short = flexible.with_config(configurable={"max_tokens": 2})
        assert len(list(short.stream("hi"))) >= 2
        assert sampling(model).max_tokens == 2
        flexible.invoke("hi")
        assert sampling(model).max_tokens > 2

    def test_may_switch_streaming_off(self) -> None:
        assert len(list(chat(streaming=False).stream("hi"))) == 1


class TestLoading:
    def test_waits_for_the_first_call_and_is_shared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loads_: list[Any] = []
        engine = scripted_engine(ANSWER)
        monkeypatch.setattr(module, "shared_engine", lambda name, **options: loads_.append((name, options)) or engine)
        model = ChatLocal("some/where", dtype="float32", token="secret", num_threads=1, revision="v1")
        assert loads_ == []
        assert model.profile is not None
        assert "max_input_tokens" not in model.profile
        model.invoke("hi")
        options = {"dtype": "float32", "token": "secret", "num_threads": 1, "revision": "v1"}
        assert loads_ == [("some/where", options)]
        assert model.profile["max_input_tokens"] == engine.context_length

    def test_of_another_model_for_one_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engines = {
            "some/where": scripted_engine("one", name="first"),
            "else/where": scripted_engine("two", name="second"),
        }
        asked: list[Any] = []
        monkeypatch.setattr(module, "shared_engine", lambda name, **options: asked.append(options) or engines[name])
        model = ChatLocal("some/where", dtype="float32", revision="v1", adapter="lora", template="chatml")
        other = model.invoke("hi", model="else/where")
        assert (other.content, other.response_metadata["model_name"]) == ("two", "else/where")
        assert asked == [{"dtype": "float32"}]  # revision, adapter and template belong to the first model
        assert model.invoke("hi").content == "one"

    async def test_does_not_block_the_event_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import threading

        threads: list[threading.Thread] = []
        engine = scripted_engine(ANSWER)
        monkeypatch.setattr(
            module, "shared_engine", lambda *_, **__: threads.append(threading.current_thread()) or engine
        )
        await ChatLocal("some/where").ainvoke("hi")
        assert threads[0] is not threading.main_thread()

    def test_takes_torch_objects_and_paths(self, tmp_path: Any) -> None:
        import torch

        model = ChatLocal(tmp_path, dtype=torch.bfloat16, device=torch.device("cpu"))  # type: ignore[arg-type]
        assert (model.model, model.dtype, model.device) == (str(tmp_path), "bfloat16", "cpu")


class TestErrors:
    @pytest.mark.parametrize("kind", [ContextOverflow, ContextOverflowError])
    def test_a_prompt_that_is_too_long(self, kind: type[Exception]) -> None:
        model = chat()
        with pytest.raises(kind, match="512"):
            model.invoke("word " * 600)
        assert backend_of(model.engine).requests == []

    async def test_a_prompt_that_is_too_long_for_async(self) -> None:
        with pytest.raises(ContextOverflowError):
            await chat().ainvoke("word " * 600)

    async def test_a_prompt_that_turns_out_too_long_while_it_streams(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def stream(*_: Any, **__: Any) -> Any:
            yield Text("a")
            raise ContextOverflow(600, 512)

        async def astream(*_: Any, **__: Any) -> Any:
            yield Text("a")
            raise ContextOverflow(600, 512)

        model = chat()
        monkeypatch.setattr(model.engine, "stream", stream)
        monkeypatch.setattr(model.engine, "astream", astream)
        with pytest.raises(ContextOverflowError):
            model.invoke("hi")
        with pytest.raises(ContextOverflowError):
            await model.ainvoke("hi")

    def test_of_the_backend_pass_after_the_text_before_them(self) -> None:
        model = ChatLocal(engine=scripted_engine("abc def ghi", fail_after=2))
        seen = []
        with pytest.raises(RuntimeError, match="the script fails here"):
            seen.extend(model.stream("hi"))
        assert len(seen) == 2
        assert backend_of(model.engine).running == 0

    def test_a_timeout(self) -> None:
        engine = scripted_engine(lambda _: itertools.cycle(spell("word ")), delay=0.01)
        for model, arguments in (
            (ChatLocal(engine=engine, timeout=0.05), {}),
            (ChatLocal(engine=engine), {"timeout": 0.05}),
        ):
            with pytest.raises(GenerationTimeout):
                model.invoke("hi", max_tokens=100, **arguments)
            assert backend_of(engine).running == 0

    async def test_a_timeout_of_an_async_call(self) -> None:
        engine = scripted_engine(lambda _: itertools.cycle(spell("word ")), delay=0.01)
        with pytest.raises(GenerationTimeout):
            await ChatLocal(engine=engine, timeout=0.05).ainvoke("hi", max_tokens=100)


class TestCallbacks:
    def test_get_each_token_once_and_the_usage(self) -> None:
        class Tokens(BaseCallbackHandler):
            def __init__(self) -> None:
                self.tokens: list[str] = []

            def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
                self.tokens.append(token)

        tokens, usage = Tokens(), UsageMetadataCallbackHandler()
        model = chat()
        list(model.stream("hi", config={"callbacks": [tokens, usage]}))
        assert "".join(tokens.tokens) == ANSWER
        assert usage.usage_metadata[model.engine.name]["output_tokens"] == len(spell(ANSWER))

    async def test_of_a_run_manager_that_is_handed_in(self) -> None:
        model = chat()
        manager = MagicMock()
        chunks = list(model._stream([HumanMessage("hi")], run_manager=manager))
        assert manager.on_llm_new_token.call_count == len(chunks)
        assert "".join(call.args[0] for call in manager.on_llm_new_token.call_args_list) == ANSWER


class TestTokens:
    def test_of_a_text_are_the_models_own(self) -> None:
        model = chat()
        assert model.get_token_ids(ANSWER) == list(spell(ANSWER))
        assert model.get_num_tokens(ANSWER) == len(spell(ANSWER))
        assert model.get_num_tokens("") == 0

    def test_of_messages_are_the_prompts(self) -> None:
        model = chat()
        messages = [SystemMessage("Be brief."), HumanMessage("hi")]
        assert model.get_num_tokens_from_messages(messages) == model.invoke(messages).usage_metadata["input_tokens"]  # type: ignore[index]
        assert model.get_num_tokens_from_messages([]) == 0

    def test_trim_a_conversation(self) -> None:
        model = chat()
        turns = [HumanMessage("你好 " * 20), AIMessage("Harry " * 20), HumanMessage("What is the answer?")]
        limit = model.get_num_tokens_from_messages(turns) - 1
        kept = trim_messages(turns, max_tokens=limit, token_counter=model, strategy="last")
        assert kept == turns[1:]


class TestIdentity:
    def test_two_models_do_not_share_cached_answers(self) -> None:
        cache = InMemoryCache()
        first, second = chat("from a", cache=cache), chat("from b", cache=cache)
        assert [first.invoke("hi").content, second.invoke("hi").content] == ["from a", "from b"]
        assert first.invoke("hi").content == "from a"
        assert len(backend_of(first.engine).requests) == 1

    def test_settings_are_part_of_it(self) -> None:
        engine, cache = scripted_engine("one", "two", "three"), InMemoryCache()
        assert ChatLocal(engine=engine, cache=cache, temperature=0).invoke("hi").content == "one"
        assert ChatLocal(engine=engine, cache=cache, temperature=1).invoke("hi").content == "two"
        assert ChatLocal(engine=engine, cache=cache, temperature=0).invoke("hi").content == "one"
        assert ChatLocal(engine=engine, cache=cache, temperature=0).invoke("hi", seed=1).content == "three"

    def test_names_every_sampling_setting_and_no_address(self) -> None:
        model = chat(temperature=0.5, seed=4, stop=["END"])
        identity = model.asdict()
        assert identity["model"] == model.engine.name
        assert (identity["temperature"], identity["seed"], identity["stop"]) == (0.5, 4, ["END"])
        assert set(identity) >= {"max_tokens", "top_p", "top_k", "min_p", "repetition_penalty", "dtype", "adapter"}
        assert "0x" not in repr(identity)
        assert "token" not in identity

    def test_for_traces(self) -> None:
        model = ChatLocal("some/where", temperature=0.5, max_tokens=7, stop=["END"])
        assert model._get_ls_params() == {
            "ls_provider": "chatlocal",
            "ls_model_type": "chat",
            "ls_model_name": "some/where",
            "ls_temperature": 0.5,
            "ls_max_tokens": 7,
            "ls_stop": ["END"],
        }
        changed = model._get_ls_params(stop=["X"], model="else/where", temperature=0.1, max_tokens=3)
        assert (changed["ls_model_name"], changed["ls_temperature"]) == ("else/where", 0.1)
        assert (changed["ls_max_tokens"], changed["ls_stop"]) == (3, ["X"])
        assert ChatLocal()._get_ls_params()["ls_model_name"] == "SmolLM2-135M-Instruct"

    def test_profile_says_what_it_can(self) -> None:
        profile = chat().profile
        assert profile is not None
        assert profile["max_input_tokens"] == 512
        assert profile["structured_output"] is True
        assert profile["tool_calling"] is True
        assert profile["image_inputs"] is False
        assert chat(profile={"max_input_tokens": 7}).profile == {"max_input_tokens": 7}


@pytest.mark.filterwarnings("ignore:The function `loads?` is in beta")
class TestSerialization:
    def test_round_trip(self) -> None:
        model = ChatLocal("some/where", temperature=0.5, stop=["END"], dtype="float32", max_tokens=5)
        text = dumps(model)
        again = loads(text, valid_namespaces=["chatlocal"], allowed_objects=[ChatLocal])
        assert isinstance(again, ChatLocal)
        assert again.asdict() == model.asdict()
        assert ChatLocal.get_lc_namespace() == ["chatlocal", "integrations", "langchain"]

    def test_writes_no_secret(self) -> None:
        model = ChatLocal("some/where", token="hf_secret", api_key="sk-secret")
        assert "secret-" not in dumps(model)
        assert "hf_secret" not in dumps(model)
        assert "sk-secret" not in dumps(model)
        again = load(
            dumpd(model),
            valid_namespaces=["chatlocal"],
            allowed_objects=[ChatLocal],
            secrets_map={"HF_TOKEN": "hf_secret"},
        )
        assert again.token == SecretStr("hf_secret")

    def test_keeps_the_name_of_an_engine_and_not_the_engine(self) -> None:
        written = dumpd(ChatLocal(engine=scripted_engine(ANSWER, name="some/where"), seed=1))
        assert written["kwargs"]["model"] == "some/where"
        assert not {"engine", "given_engine"} & set(written["kwargs"])
        again = load(written, valid_namespaces=["chatlocal"], allowed_objects=[ChatLocal])
        assert (again.model, again.seed) == ("some/where", 1)
