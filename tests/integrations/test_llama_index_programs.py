"""The core's programs over LocalLLM: a class is filled by a call, whether the model was trained for tools or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.program import FunctionCallingProgram, LLMTextCompletionProgram
from llama_index.core.program.utils import FlexibleModel, get_program_for_llm
from llama_index.core.prompts import PromptTemplate
from llama_index.core.selectors import PydanticSingleSelector
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel

from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import ask, final_answer, prompts, recorded_events, tool_call, tool_llm
from tests.scripted import backend_of

FORMS = ("structured_predict", "astructured_predict", "stream_structured_predict", "astream_structured_predict")


class Dog(BaseModel):
    """A dog in a story."""

    name: str
    age: int
    foods: list[str]


DATA: dict[str, Any] = {"name": "Harry", "age": 3, "foods": ["chicken", "fish and more fish"]}
DOG = Dog(**DATA)
IN_WORDS = f"<tool_call>\n{json.dumps({'name': 'Dog', 'arguments': DATA})}\n</tool_call>"


def dog_llm(words: bool, answer: str | None = None, **settings: Any) -> LocalLLM:
    return tool_llm(answer or (IN_WORDS if words else tool_call("Dog", DATA)), words=words, **settings)


def template() -> PromptTemplate:
    """A fresh one: the core's programs put their output parser into it."""
    return PromptTemplate("Tell of {who}.")


async def run(program: Any, **kwargs: Any) -> list[Any]:
    """What a program gives in its four forms, last first."""
    return [
        program(**kwargs),
        await program.acall(**kwargs),
        list(program.stream_call(**kwargs))[-1],
        [item async for item in await program.astream_call(**kwargs)][-1],
    ]


@pytest.mark.parametrize("words", [False, True])
async def test_a_function_calling_program_in_four_forms(words: bool) -> None:
    llm = dog_llm(words, system_prompt="Be brief.")
    program = FunctionCallingProgram.from_defaults(Dog, prompt=template(), llm=llm)
    assert await run(program, who="Harry") == [DOG] * 4
    requests = backend_of(llm.engine).requests
    assert len({request.prompt_ids for request in requests}) == 1  # acall of the core forgets the system prompt
    # All demand the call, also where the core forgets to: a model in words would answer in prose otherwise.
    assert all(request.constraint_spec is not None for request in requests)
    assert len({request.constraint_spec for request in requests}) == 1
    assert prompts(llm)[0].count("Be brief.") == 1


@pytest.mark.parametrize("words", [False, True])
async def test_streamed_objects_grow(words: bool) -> None:
    llm = dog_llm(words)
    program = FunctionCallingProgram.from_defaults(Dog, prompt=template(), llm=llm)
    objects: list[Any] = list(program.stream_call(who="Harry"))
    assert isinstance(objects[0], FlexibleModel)
    assert objects[-1] == DOG
    if words:  # Qwen-1's calls are given when they are whole
        assert any(each.name == "Harry" and getattr(each, "age", None) is None for each in objects)
        assert len({repr(each) for each in objects}) > 4


async def test_several_objects() -> None:
    two = [DATA, {"name": "Rex", "age": 9, "foods": []}]
    text = "\n".join(f"<tool_call>\n{json.dumps({'name': 'Dog', 'arguments': data})}\n</tool_call>" for data in two)
    llm = dog_llm(True, text)
    program = FunctionCallingProgram.from_defaults(Dog, prompt=template(), llm=llm, allow_parallel_tool_calls=True)
    dogs = [Dog(**data) for data in two]
    assert await run(program, who="all") == [dogs] * 4


def test_a_tool_choice_of_the_program_is_honoured() -> None:
    llm = dog_llm(False, final_answer("No."))
    program = FunctionCallingProgram.from_defaults(
        Dog, prompt=template(), llm=llm, tool_choice="none", tool_required=False
    )
    with pytest.raises(OutputInvalid, match="no tool call"):
        program(who="Harry")
    list(program.stream_call(who="Harry"))
    assert "A dog in a story" not in "".join(prompts(llm))


def test_a_call_that_was_cut_off_says_what_to_do() -> None:
    program = FunctionCallingProgram.from_defaults(Dog, prompt=template(), llm=dog_llm(True, max_tokens=30))
    with pytest.raises(OutputInvalid, match=r"call to Dog cannot be read .*raise max_tokens"):
        program(who="Harry")


@pytest.mark.parametrize("mode", [PydanticProgramMode.DEFAULT, PydanticProgramMode.FUNCTION])
async def test_the_program_of_a_model_that_calls_functions(mode: PydanticProgramMode) -> None:
    program = get_program_for_llm(Dog, template(), dog_llm(False), pydantic_program_mode=mode)
    assert isinstance(program, FunctionCallingProgram)
    assert await run(program, who="Harry") == [DOG] * 4


async def test_the_text_program() -> None:
    llm = tool_llm(json.dumps(DATA))
    program = get_program_for_llm(Dog, template(), llm, pydantic_program_mode=PydanticProgramMode.LLM)
    assert isinstance(program, LLMTextCompletionProgram)
    assert await run(program, who="Harry") == [DOG] * 4


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", [PydanticProgramMode.FUNCTION, PydanticProgramMode.OPENAI])
async def test_structured_prediction_by_calls(mode: PydanticProgramMode, form: str, words: bool) -> None:
    llm = dog_llm(words, pydantic_program_mode=mode, system_prompt="Be brief.")
    with recorded_events() as events:
        objects = await ask(llm, form, Dog, template(), who="Harry")
    assert objects[-1] == DOG
    assert type(objects[-1]) is Dog
    assert "A dog in a story" in prompts(llm)[0]
    assert prompts(llm)[0].count("Be brief.") == 1
    names = [type(event).__name__ for event in events if "Structured" in type(event).__name__]
    assert (names[0], names[-1]) == ("LLMStructuredPredictStartEvent", "LLMStructuredPredictEndEvent")
    assert llm.pydantic_program_mode == mode


@pytest.mark.parametrize("form", FORMS)
async def test_structured_prediction_by_grammar_calls_no_tools(form: str) -> None:
    llm = dog_llm(False, json.dumps(DATA))
    assert (await ask(llm, form, Dog, template(), who="Harry"))[-1] == DOG
    assert "tool" not in prompts(llm)[0].lower()
    with pytest.raises(UnsupportedInput, match="tools"):
        await ask(llm, form, Dog, template(), {"tools": [{"name": "add"}]}, who="Harry")


def test_a_selector_of_the_core() -> None:
    """Routers choose by a program where the model calls functions."""

    llm = tool_llm(tool_call("SingleSelection", {"index": 2, "reason": "It is about cats."}))
    selector = PydanticSingleSelector.from_defaults(llm=llm)
    chosen = selector.select(["on dogs", "on cats"], "What do cats eat?")
    assert (chosen.ind, chosen.reason) == (1, "It is about cats.")  # the core counts from 0
