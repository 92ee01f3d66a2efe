"""OpenAI's older functions= and function_call=, which langchain_classic's chains are made of."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from langchain_core._api.deprecation import LangChainDeprecationWarning
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import FunctionMessage, HumanMessage
from langchain_core.output_parsers.openai_functions import JsonOutputFunctionsParser
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel, Field

from chatlocal import ChatLocal
from chatlocal.engine.errors import UnsupportedInput
from tests.integrations.chatml_tools import HERMES
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

# These chains are deprecated in favour of with_structured_output, and say so; nothing else may warn.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")


class Dog(BaseModel):
    """Identifying information about a dog."""

    name: str = Field(..., description="The dog's name")
    color: str = Field(..., description="The dog's color")
    fav_food: str | None = Field(None, description="The dog's favorite food")


HARRY = '{"name": "Harry", "color": "brown", "fav_food": "chicken"}'
DOG = Dog(name="Harry", color="brown", fav_food="chicken")
SENTENCE = "Harry was a chubby brown beagle who loved chicken"
FUNCTION = {"name": "Dog", "description": "A dog to record.", "parameters": Dog.model_json_schema()}
FORCED: dict[str, Any] = {"functions": [FUNCTION], "function_call": {"name": "Dog"}}

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "You are a world class algorithm for extracting information in structured formats."),
        ("human", "Use the given format to extract information from the following input: {input}"),
        ("human", "Tip: Make sure to answer in the correct format"),
    ]
)


def chat(answer: str = HARRY) -> ChatLocal:
    return ChatLocal(engine=scripted_engine(answer, context_length=4096))


class TestCall:
    def test_is_in_additional_kwargs(self) -> None:
        model = chat()
        reply = model.invoke(SENTENCE, **FORCED)
        assert reply.content == ""
        assert reply.additional_kwargs == {"function_call": {"name": "Dog", "arguments": HARRY}}
        assert reply.response_metadata["finish_reason"] == "function_call"
        request = backend_of(model.engine).requests[-1]
        assert set(json.loads(request.constraint_spec.source)["properties"]) == {"name", "color", "fav_food"}
        assert "The dog's color" in tiny_tokenizer().decode(request.prompt_ids)

    async def test_streams_its_name_once(self) -> None:
        model = chat()
        chunks = list(model.stream(SENTENCE, **FORCED))
        pieces = [chunk.additional_kwargs.get("function_call", {}) for chunk in chunks]
        assert [piece.get("name") for piece in pieces] == ["Dog"] + [None] * (len(pieces) - 1)
        assert "".join(piece.get("arguments", "") for piece in pieces) == HARRY
        assert len(pieces) > 5
        total = sum(chunks[1:], start=chunks[0])
        assert total.additional_kwargs == {"function_call": {"name": "Dog", "arguments": HARRY}}
        assert [chunk.additional_kwargs async for chunk in model.astream(SENTENCE, **FORCED)] == [
            chunk.additional_kwargs for chunk in chunks
        ]

    def test_streams_through_langchains_parser(self) -> None:
        values = list((chat().bind(**FORCED) | JsonOutputFunctionsParser()).stream(SENTENCE))
        assert values[-1] == json.loads(HARRY)
        assert len(values) > 5

    def test_that_is_cut_says_length(self) -> None:
        reply = chat().invoke(SENTENCE, **FORCED, max_tokens=3)
        assert reply.response_metadata["finish_reason"] == "length"

    def test_picks_the_named_function(self) -> None:
        other = {"name": "Cat", "parameters": {"type": "object", "properties": {"lives": {"type": "integer"}}}}
        for choice in ({"name": "Cat"}, "Cat"):
            reply = chat('{"lives": 9}').invoke(SENTENCE, functions=[FUNCTION, other], function_call=choice)
            assert reply.additional_kwargs["function_call"] == {"name": "Cat", "arguments": '{"lives": 9}'}

    def test_none_answers_in_text(self) -> None:
        model = chat("woof")
        assert model.invoke(SENTENCE, functions=[FUNCTION], function_call="none").content == "woof"
        assert backend_of(model.engine).requests[-1].constraint_spec is None

    def test_of_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(UnsupportedInput, match=r"'Cat' and the functions are \['Dog'\]"):
            chat().invoke(SENTENCE, functions=[FUNCTION], function_call={"name": "Cat"})
        with pytest.raises(UnsupportedInput, match="'Cat'"):
            chat().invoke(SENTENCE, function_call={"name": "Cat"})


CALL = f'<tool_call>\n{{"name": "Dog", "arguments": {HARRY}}}\n</tool_call>'
CAT = {"name": "Cat", "parameters": {"type": "object", "properties": {"lives": {"type": "integer"}}}}


def trained(*answers: str, **settings: Any) -> ChatLocal:
    """Over a model that was trained for tools."""
    return ChatLocal(engine=scripted_engine(*(answers or (CALL,)), template=HERMES, context_length=4096), **settings)


def mode(model: ChatLocal) -> str:
    """What the constraint of the last request leaves to the model."""
    spec = backend_of(model.engine).requests[-1].constraint_spec
    return "none" if spec is None else "auto" if spec.kind == "free_text" else "required"


class TestCallOfTheModelsChoice:
    @pytest.mark.parametrize("choice", [{}, {"function_call": "auto"}, {"function_call": None}])
    def test_is_in_additional_kwargs(self, choice: dict[str, Any]) -> None:
        model = trained()
        reply = model.invoke(SENTENCE, functions=[FUNCTION, CAT], **choice)
        assert reply.content == ""
        assert reply.additional_kwargs == {"function_call": {"name": "Dog", "arguments": HARRY}}
        assert (reply.tool_calls, reply.invalid_tool_calls) == ([], [])
        assert reply.response_metadata["finish_reason"] == "function_call"
        assert mode(model) == "auto"

    def test_may_be_an_answer(self) -> None:
        reply = trained("Woof.").invoke(SENTENCE, functions=[FUNCTION, CAT])
        assert (reply.content, reply.additional_kwargs) == ("Woof.", {})
        assert reply.response_metadata["finish_reason"] == "stop"

    def test_is_demanded_where_functions_are_required(self) -> None:
        model = trained(functions_required=True)
        model.invoke(SENTENCE, functions=[FUNCTION, CAT])
        assert mode(model) == "required"
        model.invoke(SENTENCE, functions=[FUNCTION, CAT], function_call="auto")
        assert mode(model) == "auto"
        model.invoke(SENTENCE, functions=[FUNCTION, CAT], function_call="none")
        assert mode(model) == "none"
        model.invoke(SENTENCE)
        assert mode(model) == "none"
        assert model._identifying_params["functions_required"] is True

    async def test_streams_its_name_once(self) -> None:
        model = trained()
        chunks = [chunk async for chunk in model.astream(SENTENCE, functions=[FUNCTION])]
        pieces = [chunk.additional_kwargs["function_call"] for chunk in chunks if chunk.additional_kwargs]
        assert [piece.get("name") for piece in pieces] == ["Dog"] + [None] * (len(pieces) - 1)
        assert len(pieces) > 5
        total = sum(chunks[1:], start=chunks[0])
        assert total.additional_kwargs == {"function_call": {"name": "Dog", "arguments": HARRY}}

    def test_that_is_cut_keeps_what_was_written_and_says_so(self) -> None:
        model = trained(CALL.split("ry")[0])
        chunks = list(model.stream(SENTENCE, functions=[FUNCTION]))
        for reply in (model.invoke(SENTENCE, functions=[FUNCTION]), sum(chunks[1:], start=chunks[0])):
            assert reply.additional_kwargs == {"function_call": {"name": "Dog", "arguments": '{"name": "Har'}}
            assert reply.tool_calls == []
            assert [broken["name"] for broken in reply.invalid_tool_calls] == ["Dog"]
            assert reply.response_metadata["finish_reason"] == "stop"

    def test_has_no_place_for_a_second_one_which_is_a_tool_call(self) -> None:
        reply = trained(f"{CALL}\n{CALL}").invoke(SENTENCE, functions=[FUNCTION])
        assert reply.additional_kwargs == {"function_call": {"name": "Dog", "arguments": HARRY}}
        assert [call["args"] for call in reply.tool_calls] == [json.loads(HARRY)]

    def test_goes_back_to_the_model_with_its_result(self) -> None:
        model = trained(CALL, "A brown dog.")
        asked = HumanMessage(SENTENCE)
        called = model.invoke([asked], functions=[FUNCTION])
        result = FunctionMessage("recorded", name="Dog")
        assert model.invoke([asked, called, result], functions=[FUNCTION]).content == "A brown dog."
        prompt = tiny_tokenizer().decode(backend_of(model.engine).requests[-1].prompt_ids)
        assert prompt.index("Harry was") < prompt.index('"color": "brown"') < prompt.index("recorded")

    @pytest.mark.parametrize("other", [{"tools": [FUNCTION]}, {"tool_choice": "any"}, {"parallel_tool_calls": True}])
    def test_is_not_mixed_with_tools(self, other: dict[str, Any]) -> None:
        for choice in ({}, {"function_call": {"name": "Dog"}}):
            with pytest.raises(UnsupportedInput, match=f"leave out {next(iter(other))}"):
                trained().invoke(SENTENCE, functions=[FUNCTION], **choice, **other)


class TestClassicChains:
    def test_structured_output_of_a_class(self) -> None:
        from langchain_classic.chains.openai_functions import create_structured_output_chain

        chain = create_structured_output_chain(Dog, chat(f'{{"output": {HARRY}}}'), PROMPT)
        assert chain.run(SENTENCE) == DOG
        assert chain.invoke({"input": SENTENCE}) == {"input": SENTENCE, "function": DOG}

    async def test_structured_output_async(self) -> None:
        from langchain_classic.chains.openai_functions import create_structured_output_chain

        chain = create_structured_output_chain(Dog, chat(f'{{"output": {HARRY}}}'), PROMPT)
        assert (await chain.ainvoke({"input": SENTENCE}))["function"] == DOG

    def test_structured_output_of_a_json_schema(self) -> None:
        from langchain_classic.chains.openai_functions import create_structured_output_chain

        chain = create_structured_output_chain(Dog.model_json_schema(), chat(), PROMPT)
        assert chain.run(SENTENCE) == json.loads(HARRY)

    def test_structured_output_that_is_wrong_is_an_error(self) -> None:
        from langchain_classic.chains.openai_functions import create_structured_output_chain

        with pytest.raises(OutputParserException):
            create_structured_output_chain(Dog.model_json_schema(), chat("{"), PROMPT).run(SENTENCE)

    def test_one_function(self) -> None:
        from langchain_classic.chains.openai_functions import create_openai_fn_chain

        assert create_openai_fn_chain([Dog], chat(), PROMPT).run(SENTENCE) == DOG

    def test_several_functions(self) -> None:
        from langchain_classic.chains.openai_functions import create_openai_fn_chain

        class Person(BaseModel):
            """A person to record."""

            name: str

        model = trained(functions_required=True)
        assert create_openai_fn_chain([Person, Dog], model, PROMPT).run(SENTENCE) == DOG
        assert mode(model) == "required"

        def record(name: str) -> None:
            """Record a name."""

        called = create_openai_fn_chain([record, FUNCTION], model, PROMPT).run(SENTENCE)
        assert called == {"name": "Dog", "arguments": json.loads(HARRY)}

    def test_extraction(self) -> None:
        from langchain_classic.chains import create_extraction_chain, create_extraction_chain_pydantic

        answer = f'{{"info": [{HARRY}, {HARRY}]}}'
        schema = {"properties": {"name": {"type": "string"}, "color": {"type": "string"}}, "required": ["name"]}
        assert create_extraction_chain(schema, chat(answer)).run(SENTENCE) == [json.loads(HARRY)] * 2
        assert create_extraction_chain_pydantic(Dog, chat(answer)).run(SENTENCE) == [DOG] * 2

    def test_tagging(self) -> None:
        from langchain_classic.chains import create_tagging_chain, create_tagging_chain_pydantic

        assert create_tagging_chain(Dog.model_json_schema(), chat()).run(SENTENCE) == json.loads(HARRY)
        assert create_tagging_chain_pydantic(Dog, chat()).run(SENTENCE) == DOG

    def test_runnables(self) -> None:
        from langchain_classic.chains.structured_output import create_structured_output_runnable

        wrapped = chat(f'{{"output": {HARRY}}}')
        functions = create_structured_output_runnable(Dog, wrapped, PROMPT, mode="openai-functions")
        assert functions.invoke({"input": SENTENCE}) == DOG
        as_json = create_structured_output_runnable(
            Dog, chat(), PROMPT, mode="openai-json", enforce_function_usage=False
        )
        assert as_json.invoke({"input": SENTENCE}) == DOG

    @pytest.mark.parametrize("single", [True, False])
    def test_runnables_with_tools(self, single: bool) -> None:
        from langchain_classic.chains.structured_output import create_structured_output_runnable

        for schema, expected in ((Dog, DOG), (FUNCTION, json.loads(HARRY))):
            model = trained()
            runnable = create_structured_output_runnable(
                schema, model, PROMPT, mode="openai-tools", enforce_function_usage=True, return_single=single
            )
            assert runnable.invoke({"input": SENTENCE}) == (expected if single else [expected])
            assert mode(model) == "required"

    def test_extraction_with_tools(self) -> None:
        from langchain_classic.chains.openai_tools import create_extraction_chain_pydantic

        assert create_extraction_chain_pydantic(Dog, trained()).invoke({"input": SENTENCE}) == [DOG]

    def test_warn_of_nothing_but_their_own_age(self) -> None:
        from langchain_classic.chains.openai_functions import create_structured_output_chain

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            create_structured_output_chain(Dog, chat(f'{{"output": {HARRY}}}'), PROMPT).run(SENTENCE)
        # Each is given once in a process, so that there may be none here.
        assert {warning.category for warning in caught} <= {LangChainDeprecationWarning}
