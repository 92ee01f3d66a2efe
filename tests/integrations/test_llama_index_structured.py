"""Structured prediction in its four forms and as_structured_llm, over a scripted backend."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.program.utils import FlexibleModel
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel, Field

from chatlocal.engine.constraints import json_schema
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import ask, prompts, recorded_events, text_of, until
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

FORMS = ("structured_predict", "astructured_predict", "stream_structured_predict", "astream_structured_predict")


class Coat(BaseModel):
    color: str
    spots: int


class Dog(BaseModel):
    """A dog in a story."""

    name: str = Field(description="What it is called")
    foods: list[str]
    coat: Coat


DATA = {"name": "Harry", "foods": ["chicken", "fish"], "coat": {"color": "brown", "spots": 3}}
DOG = Dog(**DATA)
TEMPLATE = PromptTemplate("Tell of {who}.")


async def predict(llm: Any, form: str, output_cls: type[BaseModel] = Dog, **kwargs: Any) -> list[Any]:
    """Everything that one of the four forms gives."""
    return await ask(llm, form, output_cls, TEMPLATE, who="Harry", **kwargs)


def last_prompt(llm: LocalLLM) -> str:
    return prompts(llm)[-1]


@pytest.mark.parametrize("form", FORMS)
async def test_each_form_gives_the_object_by_grammar(form: str) -> None:
    llm = LocalLLM(engine=scripted_engine(json.dumps(DATA)), system_prompt="Be brief.")
    objects = await predict(llm, form)
    assert objects[-1] == DOG
    assert type(objects[-1]) is Dog
    (request,) = backend_of(llm.engine).requests
    assert request.constraint_spec == json_schema(Dog.model_json_schema())
    prompt = last_prompt(llm)
    assert "Tell of Harry." in prompt
    assert prompt.count("Be brief.") == 1
    assert "What it is called" in prompt  # the schema, with what the fields mean


@pytest.mark.parametrize("form", FORMS[2:])
async def test_streams_give_growing_partial_objects(form: str) -> None:
    objects = await predict(LocalLLM(engine=scripted_engine(json.dumps(DATA))), form)
    partials, last = objects[:-1], objects[-1]
    assert type(last) is Dog
    assert len(partials) > 5
    assert all(isinstance(partial, FlexibleModel) for partial in partials)
    sizes = [len(json.dumps(partial.model_dump(exclude_unset=True))) for partial in partials]
    assert sizes == sorted(sizes)
    assert partials[0].foods is None
    assert any(partial.name == "Harry" and partial.foods == ["chicken"] for partial in partials)
    assert partials[-1].model_dump() == DATA


@pytest.mark.parametrize("form", FORMS)
async def test_events_of_each_form(form: str) -> None:
    with recorded_events() as sent:
        objects = await predict(LocalLLM(engine=scripted_engine(json.dumps(DATA))), form)
    events = [event for event in sent if "Structured" in type(event).__name__]
    in_progress = ["LLMStructuredPredictInProgressEvent"] * len(objects) if "stream" in form else []
    assert [type(event).__name__ for event in events] == [
        "LLMStructuredPredictStartEvent",
        *in_progress,
        "LLMStructuredPredictEndEvent",
    ]
    assert events[0].output_cls is Dog
    assert events[0].template is TEMPLATE
    assert events[0].template_args == {"who": "Harry"}
    assert events[-1].output == DOG
    chat = [type(event).__name__ for event in sent if type(event).__name__.startswith("LLMChat")]
    assert (chat[0], chat[-1]) == ("LLMChatStartEvent", "LLMChatEndEvent")


@pytest.mark.parametrize("form", FORMS)
async def test_tokens_are_counted(form: str) -> None:
    counter = TokenCountingHandler(tokenizer=lambda text: pytest.fail("counted by another tokenizer"))
    text = json.dumps(DATA)
    llm = LocalLLM(engine=scripted_engine(text), callback_manager=CallbackManager([counter]))
    await predict(llm, form)
    assert counter.completion_llm_token_count == len(tiny_tokenizer().encode(text, add_special_tokens=False))


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_that_was_cut_off_is_an_error(form: str) -> None:
    llm = LocalLLM(engine=scripted_engine(json.dumps(DATA)), max_tokens=9)
    with pytest.raises(OutputInvalid, match="max_tokens") as caught:
        await predict(llm, form)
    assert json.dumps(DATA).startswith(caught.value.raw)
    assert caught.value.raw


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_that_does_not_fit_is_an_error(form: str) -> None:
    class Positive(BaseModel):
        age: int

    llm = LocalLLM(engine=scripted_engine('{"age": "young"}'))
    with pytest.raises(OutputInvalid) as caught:
        await predict(llm, form, Positive)
    assert caught.value.raw == '{"age": "young"}'


@pytest.mark.parametrize("form", FORMS)
async def test_llm_kwargs_reach_the_call_and_are_left_as_they_were(form: str) -> None:
    llm = LocalLLM(engine=scripted_engine(json.dumps(DATA)))
    llm_kwargs = {"temperature": 0.5, "seed": 3, "tool_required": True, "tool_choice": None}
    await predict(llm, form, llm_kwargs=llm_kwargs)
    sampling = backend_of(llm.engine).requests[0].sampling
    assert (sampling.temperature, sampling.seed) == (0.5, 3)
    assert llm_kwargs == {"temperature": 0.5, "seed": 3, "tool_required": True, "tool_choice": None}
    with pytest.raises(UnsupportedInput, match="response_format"):
        await predict(llm, form, llm_kwargs={"response_format": {"type": "text"}})


@pytest.mark.parametrize("form", FORMS)
async def test_other_program_modes_go_to_the_core(form: str) -> None:
    """The text program of the core describes the schema in the prompt and parses; there is no grammar."""
    engine = scripted_engine('{"color": "brown", "spots": 3}')
    llm = LocalLLM(engine=engine, pydantic_program_mode=PydanticProgramMode.LLM, system_prompt="Be brief.")
    # The core puts its output parser into the prompt, so this one is not shared.
    assert (await ask(llm, form, Coat, PromptTemplate("Coat?")))[-1] == Coat(color="brown", spots=3)
    assert backend_of(engine).requests[0].constraint_spec is None
    assert last_prompt(llm).count("Be brief.") == 1


def test_closing_a_structured_stream_ends_the_request() -> None:
    llm = LocalLLM(engine=scripted_engine(json.dumps(DATA)))
    stream = llm.stream_structured_predict(Dog, TEMPLATE, who="Harry")
    next(stream)
    stream.close()
    backend = backend_of(llm.engine)
    assert (backend.running, backend.closed) == (0, 1)


async def test_closing_an_async_structured_stream_ends_the_request() -> None:
    llm = LocalLLM(engine=scripted_engine(json.dumps(DATA)))
    stream = await llm.astream_structured_predict(Dog, TEMPLATE, who="Harry")
    await anext(stream)
    await stream.aclose()
    backend = backend_of(llm.engine)
    # A scripted stream is closed by the thread that steps it.
    await until(lambda: backend.closed == 1)
    assert backend.running == 0


# StructuredLLM of the core calls the deprecated .json() of its Pydantic objects while it streams.
@pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
async def test_as_structured_llm() -> None:
    structured = LocalLLM(engine=scripted_engine(json.dumps(DATA)), system_prompt="Be brief.").as_structured_llm(Dog)
    messages = [ChatMessage(role="user", content="Tell of {Harry}.")]
    responses = [
        structured.chat(messages),
        await structured.achat(messages),
        list(structured.stream_chat(messages))[-1],
        [item async for item in await structured.astream_chat(messages)][-1],
        structured.complete("Tell of {Harry}."),
        await structured.acomplete("Tell of {Harry}."),
    ]
    for response in responses:
        assert response.raw == DOG
        assert json.loads(text_of(response)) == DATA
    assert len(set(prompts(structured.llm))) == 1
    assert "Tell of {Harry}." in last_prompt(structured.llm)


def test_chat_templates_as_prompts() -> None:
    llm = LocalLLM(engine=scripted_engine(json.dumps(DATA)))
    prompt = ChatPromptTemplate.from_messages([("system", "You know {who}."), ("user", "Tell.")])
    assert llm.structured_predict(Dog, prompt, who="Harry") == DOG
    assert "You know Harry." in last_prompt(llm)
