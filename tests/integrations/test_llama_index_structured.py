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
from pydantic import BaseModel, Field, ValidationError, field_validator

from chatlocal.engine.constraints import Limits, json_schema
from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import ask, prompts, recorded_events, text_of, until
from tests.scripted import backend_of, scripted_engine, spell
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
    assert request.constraint_spec == json_schema(Dog.model_json_schema(), limits=Limits())
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


@pytest.mark.parametrize("form", FORMS[2:])
async def test_partial_objects_of_classes_in_unions_and_lists(form: str) -> None:
    class Kennel(BaseModel):
        dogs: list[Dog]
        best: Dog | Coat | None
        places: int

    data = {"dogs": [DATA, DATA], "best": {"color": "blue", "spots": 40}, "places": 120}
    objects = await predict(LocalLLM(engine=scripted_engine(json.dumps(data))), form, Kennel)
    assert objects[-1] == Kennel(**data)
    partials = [partial.model_dump() for partial in objects[:-1]]
    assert partials[0] == {"dogs": None, "best": None, "places": None}
    assert {"dogs": [{"name": "Harry", "foods": []}], "best": None, "places": None} in partials
    # Numbers come whole.
    assert {
        dog["coat"]["spots"] for one in partials for dog in one["dogs"] or () if dog.get("coat", {}).get("spots")
    } == {3}
    assert {one["best"]["spots"] for one in partials if "spots" in (one["best"] or ())} == {40}
    assert {one["places"] for one in partials} == {None, 120}


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


class Even(BaseModel):
    count: int

    @field_validator("count")
    @classmethod
    def is_even(cls, count: int) -> int:
        if count % 2:
            raise ValueError("count must be even")
        return count


ODD, EVEN = '{"count": 3}', '{"count": 4}'


@pytest.mark.parametrize("form", FORMS[:2])
async def test_an_object_that_is_refused_is_asked_for_again(form: str) -> None:
    llm = LocalLLM(engine=scripted_engine(ODD, EVEN), max_retries=1, system_prompt="Be brief.")
    with recorded_events() as sent:
        assert await predict(llm, form, Even) == [Even(count=4)]
    again = last_prompt(llm)
    assert again.index("Tell of Harry.") < again.index(ODD) < again.index("count must be even")
    assert again.count("Be brief.") == 1
    kinds = [type(event).__name__ for event in sent if "StructuredPredict" in type(event).__name__]
    assert kinds == ["LLMStructuredPredictStartEvent", "LLMStructuredPredictEndEvent"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("retries", [0, 2])
async def test_the_error_tells_of_all_tries(form: str, retries: int) -> None:
    llm = LocalLLM(engine=scripted_engine(ODD), max_retries=retries)
    tries = 1 if "stream" in form else 1 + retries
    with pytest.raises(OutputInvalid, match=f"after {tries} tr") as caught:
        await predict(llm, form, Even)
    assert [one.answer for one in caught.value.tries] == [ODD] * tries
    assert all("count must be even" in (one.error or "") for one in caught.value.tries)
    assert len(backend_of(llm.engine).requests) == tries


@pytest.mark.parametrize("form", FORMS[:2])
async def test_a_cut_object_and_a_full_context_are_not_asked_again(form: str) -> None:
    cut = LocalLLM(engine=scripted_engine(EVEN), max_retries=2, max_tokens=3)
    full = LocalLLM(engine=scripted_engine(ODD, context_length=700), max_retries=50)
    for llm, most in ((cut, 1), (full, 40)):
        with pytest.raises(OutputInvalid) as caught:
            await predict(llm, form, Even)
        assert len(caught.value.tries) == len(backend_of(llm.engine).requests) <= most


def test_max_retries_is_a_count() -> None:
    with pytest.raises(ValidationError):
        LocalLLM(max_retries=-1)
    assert LocalLLM().max_retries == 0


@pytest.mark.parametrize("form", ["chat", "achat", "complete", "acomplete"])
async def test_as_structured_llm_shows_the_tries(form: str) -> None:
    llm = LocalLLM(engine=scripted_engine(ODD, EVEN), max_retries=1)
    question: Any = "How many?" if "complete" in form else [ChatMessage(role="user", content="How many?")]
    (response,) = await ask(llm.as_structured_llm(Even), form, question)
    assert response.raw == Even(count=4)
    first, second = response.additional_kwargs["tries"]
    assert (first["answer"], second) == (ODD, {"answer": EVEN, "error": None})
    assert "count must be even" in first["error"]
    assert response.additional_kwargs["completion_tokens"] == len(spell(ODD)) + len(spell(EVEN))
    prompts_used = [len(request.prompt_ids) for request in backend_of(llm.engine).requests]
    assert response.additional_kwargs["prompt_tokens"] == sum(prompts_used)


def test_as_structured_llm_says_what_validation_alone_sees_to() -> None:
    class Tags(BaseModel):
        tags: set[str]

    response = LocalLLM(engine=scripted_engine('{"tags": ["a"]}')).as_structured_llm(Tags).complete("Which?")
    assert response.additional_kwargs["left_to_validation"] == ["uniqueItems at /properties/tags"]


def test_as_structured_llm_in_other_modes_is_the_cores() -> None:
    llm = LocalLLM(engine=scripted_engine(EVEN), pydantic_program_mode=PydanticProgramMode.LLM)
    response = llm.as_structured_llm(Even).complete("How many?")
    assert (response.raw, response.additional_kwargs) == (Even(count=4), {})


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
