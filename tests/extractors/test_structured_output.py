"""The chain against models whose answers are written down: what it returns, streams and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from chatlocal import ChatLocal
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.extractors import create_structured_output_chain
from tests.scripted import backend_of, scripted_engine

TEXT = "John had a dog named Harry, who was a brown beagle that loved chicken"
ANSWER = '{"name": "Harry", "color": "brown"}'


class Dog(BaseModel):
    """Identifying information about a dog."""

    name: str = Field(description="The dog's name")
    color: str = Field(description="The dog's color")


class DogDict(TypedDict):
    """Identifying information about a dog."""

    name: str
    color: str


DOG_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "color": {"type": "string"}},
    "required": ["name", "color"],
}
HARRY = Dog(name="Harry", color="brown")
PROMPT = ChatPromptTemplate.from_messages([("system", "Extract the dog."), ("user", "The text: {input}")])


class CallingModel(FakeMessagesListChatModel):
    """Another library's model: it has tool calls and with_structured_output as langchain_core makes it."""

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        [message] = self.responses
        assert isinstance(message, AIMessage)
        calls = [
            tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=0)
            for call in message.tool_calls
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(message.content, tool_call_chunks=calls))

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind()


def local(*answers: str) -> ChatLocal:
    return ChatLocal(engine=scripted_engine(*(answers or (ANSWER,))))


def calling(name: str, args: dict[str, Any]) -> CallingModel:
    call = {"name": name, "args": args, "id": "1", "type": "tool_call"}
    return CallingModel(responses=[AIMessage("", tool_calls=[call])])


def sent(model: ChatLocal) -> str:
    """The last prompt that reached the model."""
    request = model.engine.backend.requests[-1]  # type: ignore[attr-defined]
    return str(model.engine.tokenizer.decode(request.prompt_ids))


def test_run_gives_the_object() -> None:
    chain = create_structured_output_chain(Dog, local(), PROMPT)
    assert chain.run(TEXT) == HARRY
    assert chain.run({"input": TEXT}) == HARRY
    assert chain.run(input=TEXT) == HARRY


def test_invoke_gives_the_input_and_the_object_as_the_classic_chain_does() -> None:
    chain = create_structured_output_chain(Dog, local(), PROMPT)
    assert chain.invoke(TEXT) == {"input": TEXT, "function": HARRY}
    assert chain.invoke({"input": TEXT}) == {"input": TEXT, "function": HARRY}


# LangChain says once a process that the chain is deprecated: whether it does so here depends on the tests before.
@pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")
def test_the_classic_chain_says_the_same() -> None:
    functions = pytest.importorskip("langchain_classic.chains.openai_functions")
    classic = functions.create_structured_output_chain(Dog, local(f'{{"output": {ANSWER}}}'), PROMPT)
    ours = create_structured_output_chain(Dog, local(), PROMPT)
    assert classic.invoke(TEXT) == ours.invoke(TEXT)


def test_the_prompt_reaches_the_model_filled_in() -> None:
    model = local()
    create_structured_output_chain(Dog, model, PROMPT).run(TEXT)
    assert f"The text: {TEXT}" in sent(model)
    assert "Extract the dog." in sent(model)


def test_several_variables_are_all_returned() -> None:
    prompt = ChatPromptTemplate.from_template("In {language}: {text}")
    model = local()
    chain = create_structured_output_chain(Dog, model, prompt, output_key="dog")
    given = {"language": "English", "text": TEXT}
    assert chain.invoke(given) == {**given, "dog": HARRY}
    assert f"In English: {TEXT}" in sent(model)
    assert chain.run(**given) == HARRY
    with pytest.raises(UnsupportedInput, match=r"\['language', 'text'\]"):
        chain.invoke(TEXT)


def test_stream_grows_and_ends_with_the_whole_object() -> None:
    chain = create_structured_output_chain(DOG_SCHEMA, local(), PROMPT)
    streamed = list(chain.stream(TEXT))
    assert all(item["input"] == TEXT for item in streamed)
    objects = [item["function"] for item in streamed]
    assert objects[-1] == {"name": "Harry", "color": "brown"}
    assert len(objects) > 2
    lengths = [sum(len(text) for text in found.values()) for found in objects]
    assert lengths == sorted(lengths)
    assert all("Harry".startswith(found.get("name", "")) for found in objects)


def test_stream_of_a_class_gives_instances() -> None:
    streamed = list(create_structured_output_chain(Dog, local(), PROMPT).stream(TEXT))
    assert all(isinstance(item["function"], Dog) for item in streamed)
    assert streamed[-1] == {"input": TEXT, "function": HARRY}


def test_closing_the_stream_ends_the_request() -> None:
    long = json.dumps({"name": "H" * 200, "color": "brown"})
    engine = scripted_engine(long)
    stream = create_structured_output_chain(DOG_SCHEMA, ChatLocal(engine=engine), PROMPT).stream(TEXT)
    next(stream)
    stream.close()
    backend = backend_of(engine)
    assert backend.running == 0
    assert backend.steps < 20


async def test_async_gives_what_sync_gives() -> None:
    chain = create_structured_output_chain(Dog, local(), PROMPT)
    assert await chain.ainvoke(TEXT) == chain.invoke(TEXT)
    assert [item async for item in chain.astream(TEXT)] == list(chain.stream(TEXT))


def test_batch_keeps_the_order() -> None:
    def repeat(request: Any) -> tuple[int, ...]:
        asked = str(tokenizer.decode(request.prompt_ids))
        name = next(name for name in ("Rex", "Bella", "Harry") if name in asked)
        return tuple(tokenizer.encode(f'{{"name": "{name}", "color": "red"}}', add_special_tokens=False))

    model = ChatLocal(engine=scripted_engine(repeat))
    tokenizer = model.engine.tokenizer
    chain = create_structured_output_chain(Dog, model, PROMPT)
    found = chain.batch(["a dog Bella", "a dog Rex", {"input": "a dog Harry"}])
    assert [item["function"].name for item in found] == ["Bella", "Rex", "Harry"]


def test_it_is_a_runnable_among_others() -> None:
    chain = create_structured_output_chain(Dog, local(), PROMPT) | (lambda found: found["function"].name)
    assert chain.invoke(TEXT) == "Harry"
    assert list(chain.stream(TEXT)) == ["Harry"]
    picked = create_structured_output_chain(Dog, local(), PROMPT).pick("function")
    assert list(picked.stream(TEXT))[-1] == HARRY


@pytest.mark.parametrize(("schema", "title"), [(DOG_SCHEMA, "output"), ({**DOG_SCHEMA, "title": "dog"}, "dog")])
def test_a_json_schema_gives_a_dict_with_any_model(schema: dict[str, Any], title: str) -> None:
    expected = {"name": "Harry", "color": "brown"}
    assert create_structured_output_chain(schema, local(), PROMPT).run(TEXT) == expected
    assert create_structured_output_chain(schema, calling(title, expected), PROMPT).run(TEXT) == expected


def test_a_typed_dict_gives_a_dict() -> None:
    assert create_structured_output_chain(DogDict, local(), PROMPT).run(TEXT) == {"name": "Harry", "color": "brown"}


def test_another_librarys_model() -> None:
    chain = create_structured_output_chain(Dog, calling("Dog", HARRY.model_dump()), PROMPT)
    assert chain.invoke(TEXT) == {"input": TEXT, "function": HARRY}
    assert list(chain.stream(TEXT))[-1] == {"input": TEXT, "function": HARRY}


def test_an_answer_without_the_object_is_an_error() -> None:
    chain = create_structured_output_chain(Dog, CallingModel(responses=[AIMessage("a brown dog")]), PROMPT)
    with pytest.raises(OutputInvalid, match="without the object"):
        chain.run(TEXT)
    with pytest.raises(OutputInvalid, match="without the object"):
        list(chain.stream(TEXT))


async def test_an_answer_that_does_not_fit_is_an_error() -> None:
    chain = create_structured_output_chain(DOG_SCHEMA, calling("output", {"name": "Harry", "color": 3}), PROMPT)
    with pytest.raises(OutputInvalid, match=r"\$\.color") as caught:
        chain.run(TEXT)
    assert caught.value.raw == '{"name": "Harry", "color": 3}'
    with pytest.raises(OutputInvalid):
        await chain.ainvoke(TEXT)
    cut = create_structured_output_chain(Dog, local('{"name": "Har'), PROMPT)
    with pytest.raises(OutputInvalid):
        cut.run(TEXT)


def test_callbacks_tags_and_metadata_go_into_every_run() -> None:
    class Seen(BaseCallbackHandler):
        def __init__(self) -> None:
            self.runs: list[tuple[list[str] | None, dict[str, Any] | None]] = []

        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            self.runs.append((kwargs["tags"], kwargs["metadata"]))

    seen = Seen()
    chain = create_structured_output_chain(
        Dog, local(), PROMPT, callbacks=[seen], tags=["dogs"], metadata={"source": "test"}
    )
    chain.run(TEXT)
    chain.invoke(TEXT, {"tags": ["more"]})
    outer = [(tags, metadata) for tags, metadata in seen.runs if tags and "dogs" in tags]
    assert outer[0][0] == ["dogs"]
    assert outer[0][1] == {"source": "test"}
    assert any(set(tags or ()) == {"dogs", "more"} for tags, _ in outer)


@pytest.mark.parametrize("name", ["output_parser", "memory", "verbose", "typo"])
def test_what_it_cannot_do_is_an_error(name: str) -> None:
    with pytest.raises(UnsupportedInput, match=name):
        create_structured_output_chain(Dog, local(), PROMPT, **{name: object()})


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(UnsupportedInput, match="FakeListLLM has no with_structured_output"):
        create_structured_output_chain(Dog, FakeListLLM(responses=[ANSWER]), PROMPT)
    with pytest.raises(UnsupportedInput, match="'input' is a variable of the prompt"):
        create_structured_output_chain(Dog, local(), PROMPT, output_key="input")
    with pytest.raises(UnsupportedInput, match="not a JSON Schema"):
        create_structured_output_chain({"type": "function", "function": DOG_SCHEMA}, local(), PROMPT)
    chain = create_structured_output_chain(Dog, local(), PROMPT)
    with pytest.raises(UnsupportedInput, match="one input"):
        chain.run()
    with pytest.raises(UnsupportedInput, match="not both"):
        chain.run(TEXT, input=TEXT)
    with pytest.raises(TypeError, match="temperature"):
        chain.invoke(TEXT, temperature=0)
