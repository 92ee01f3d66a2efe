"""with_structured_output and response_format over scripted answers: every kind of schema, streams, wrong answers."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Annotated, Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel, Field, field_validator
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import NotRequired, TypedDict

from chatlocal import ChatLocal
from chatlocal.engine.errors import OutputInvalid, Try, UnsupportedInput, UnsupportedSchema
from chatlocal.integrations.langchain_structured import StructuredOutputInvalid
from tests.integrations.chatml_tools import HERMES
from tests.scripted import backend_of, scripted_engine, spell
from tests.tiny import tiny_tokenizer

TEXT = '{"name": "Harry", "age": 13, "foods": ["chicken", "fish"]}'
DATA = {"name": "Harry", "age": 13, "foods": ["chicken", "fish"]}


class Dog(BaseModel):
    """A dog."""

    name: str = Field(description="its name")
    age: int
    foods: list[str] = []


class OldDog(BaseModelV1):
    name: str
    age: int
    foods: list[str] = []


class DogDict(TypedDict):
    """A dog."""

    name: Annotated[str, ..., "its name"]
    age: Annotated[int, ..., "in years"]
    foods: Annotated[list[str], ..., "what it eats"]


TOOL = {
    "type": "function",
    "function": {"name": "Dog", "description": "A dog.", "parameters": Dog.model_json_schema()},
}
SCHEMAS = {
    "pydantic": (Dog, Dog(**DATA)),
    "pydantic.v1": (OldDog, OldDog(**DATA)),
    "typeddict": (DogDict, DATA),
    "json schema": (Dog.model_json_schema(), DATA),
    "tool": (TOOL, DATA),
    "function": (TOOL["function"], DATA),
}


def chat(*answers: str, **settings: Any) -> ChatLocal:
    return ChatLocal(engine=scripted_engine(*(answers or (TEXT,)), context_length=2048), **settings)


def prompt(model: ChatLocal) -> str:
    return str(tiny_tokenizer().decode(backend_of(model.engine).requests[-1].prompt_ids))


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
@pytest.mark.parametrize("strict", [None, True, False])
async def test_every_kind_of_schema(kind: str, method: Any, strict: bool | None) -> None:
    schema, expected = SCHEMAS[kind]
    model = chat()
    chain = model.with_structured_output(schema, method=method, strict=strict)
    assert chain.invoke("Tell me about Harry.") == expected
    assert await chain.ainvoke("Tell me about Harry.") == expected
    spec = backend_of(model.engine).requests[-1].constraint_spec
    assert set(json.loads(spec.source)["properties"]) == {"name", "age", "foods"}
    assert "age" in prompt(model)  # in whatever words


@pytest.mark.parametrize("kind", SCHEMAS)
async def test_streams_growing_values(kind: str) -> None:
    schema, expected = SCHEMAS[kind]
    chain = chat().with_structured_output(schema)
    values = list(chain.stream("Tell me about Harry."))
    assert len(values) > 3
    assert values[-1] == expected
    assert {type(value) for value in values} == {type(expected)}
    assert all(after != before for before, after in itertools.pairwise(values))
    assert [value async for value in chain.astream("Tell me about Harry.")] == values


def test_a_streamed_number_is_never_half_a_number() -> None:
    values = list(chat('{"name": "Zyx", "age": 1304}').with_structured_output(Dog.model_json_schema()).stream("Who?"))
    assert {value["age"] for value in values if "age" in value} == {1304}
    assert [value["name"] for value in values if value] == ["", "Z", "Zy", "Zyx", "Zyx"]  # strings do grow


def test_a_number_in_a_string_is_text() -> None:
    values = list(chat('{"name": "R2 1", "age": 1.5e3}').with_structured_output({"type": "object"}).stream("?"))
    assert values[-1] == {"name": "R2 1", "age": 1500.0}
    assert {"name": "R2 "} in values
    assert {"name": "R2 1"} in values


class Coat(BaseModel):
    color: str
    spots: int


class Owner(BaseModel):
    """Everything that makes a partial object hard: what it holds has required fields too."""

    name: str
    coat: Coat
    dogs: list[Dog]
    best: Dog | Coat | None = None
    note: str | None = None


OWNER = {
    "name": "Ann",
    "coat": {"color": "red", "spots": 12},
    "dogs": [{"name": "Rex", "age": 31, "foods": []}, {"name": "Bo", "age": 7, "foods": ["fish"]}],
    "best": {"color": "blue", "spots": 40},
    "note": "n1",
}


def test_partial_objects_validate_and_come_when_their_required_fields_are_there() -> None:
    values = list(chat(json.dumps(OWNER)).with_structured_output(Owner).stream("?"))
    assert all(isinstance(value, Owner) for value in values)
    assert values[-1] == Owner(**OWNER)
    assert values[0] == Owner(name="Ann", coat=Coat(color="red", spots=12), dogs=[])  # what it must have, and no less
    assert {dog.age for value in values for dog in value.dogs} == {31, 7}
    assert {len(value.dogs) for value in values} == {0, 1, 2}
    assert {len(value.dogs[1].foods) for value in values if len(value.dogs) == 2} == {0, 1}
    assert {value.best and type(value.best) for value in values} == {None, Coat}
    assert [note for note, _ in itertools.groupby(value.note for value in values)] == [None, "", "n", "n1"]


def test_partial_values_without_a_class_are_all_there_is() -> None:
    values = list(chat(json.dumps(OWNER)).with_structured_output(Owner.model_json_schema()).stream("?"))
    assert values[0] == {}
    assert {"name": "Ann", "coat": {"color": "re"}} in values
    assert {value["coat"]["spots"] for value in values if "spots" in value.get("coat", ())} == {12}
    assert values[-1] == OWNER


WRONG = '{"name": "Harry", "age": "old"}'


@pytest.mark.parametrize("error", [OutputInvalid, OutputParserException])
def test_a_wrong_answer_is_raised(error: type[Exception]) -> None:
    chain = chat(WRONG).with_structured_output(Dog)
    with pytest.raises(error, match="age") as caught:
        chain.invoke("?")
    assert (caught.value.raw, caught.value.llm_output) == (WRONG, WRONG)  # type: ignore[attr-defined]
    with pytest.raises(error, match="age"):
        list(chain.stream("?"))


def test_an_answer_cut_short_is_raised() -> None:
    with pytest.raises(OutputInvalid):
        chat(max_tokens=4).with_structured_output(Dog).invoke("?")


def test_include_raw() -> None:
    result = chat().with_structured_output(Dog, include_raw=True).invoke("?")
    assert isinstance(result["raw"], AIMessage)
    assert result["raw"].content == TEXT
    assert result["raw"].usage_metadata is not None
    assert (result["parsed"], result["parsing_error"]) == (Dog(**DATA), None)


async def test_include_raw_of_a_wrong_answer() -> None:
    chain = chat(WRONG).with_structured_output(Dog, include_raw=True)
    for result in (chain.invoke("?"), await chain.ainvoke("?")):
        assert (result["raw"].content, result["parsed"]) == (WRONG, None)
        assert isinstance(result["parsing_error"], OutputParserException)


async def test_include_raw_streams() -> None:
    chain = chat().with_structured_output(Dog, include_raw=True)
    parts = list(chain.stream("?"))
    total = sum(parts[1:], start=parts[0])
    assert total["raw"].text == TEXT
    assert (total["parsed"], total["parsing_error"]) == (Dog(**DATA), None)
    assert len(parts) > 3
    assert len([part async for part in chain.astream("?")]) == len(parts)


def test_json_mode_without_a_schema_takes_any_object() -> None:
    model = chat('{"anything": [1, null]}')
    assert model.with_structured_output(None, method="json_mode").invoke("In JSON, please.") == {"anything": [1, None]}
    assert prompt(model).count("JSON") == 1
    with pytest.raises(UnsupportedInput, match="needs a schema"):
        model.with_structured_output(None)


def test_what_it_does_not_take() -> None:
    with pytest.raises(ValueError, match="tools"):
        chat().with_structured_output(Dog, tools=[])
    with pytest.raises(UnsupportedInput, match="'function_calling', got 'xml'"):
        chat().with_structured_output(Dog, method="xml")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedInput, match="Dog"):
        chat().with_structured_output("Dog")  # type: ignore[arg-type]


FORMAT = {"type": "json_schema", "json_schema": {"name": "Dog", "schema": Dog.model_json_schema(), "strict": True}}


class TestResponseFormat:
    def test_of_a_schema_asks_and_constrains(self) -> None:
        model = chat()
        assert model.bind(response_format=FORMAT).invoke("hi").content == TEXT
        assert backend_of(model.engine).requests[-1].constraint_spec.kind == "json_schema"
        assert "its name" in prompt(model)

    def test_of_a_class(self) -> None:
        model = chat()
        assert model.invoke("hi", response_format=Dog).content == TEXT
        assert "its name" in prompt(model)

    def test_of_a_json_object_constrains(self) -> None:
        model = chat("{}")
        assert model.invoke("hi", response_format={"type": "json_object"}).content == "{}"
        assert json.loads(backend_of(model.engine).requests[-1].constraint_spec.source) == {"type": "object"}

    def test_of_text_is_free(self) -> None:
        model = chat("hello")
        model.invoke("hi", response_format={"type": "text"})
        assert backend_of(model.engine).requests[-1].constraint_spec is None

    @pytest.mark.parametrize("wish", [{"type": "xml"}, {"type": "json_schema"}, {}])
    def test_that_is_unknown_is_refused(self, wish: dict[str, Any]) -> None:
        with pytest.raises(UnsupportedInput, match="response_format must be"):
            chat().invoke("hi", response_format=wish)


def trained(*answers: str, name: str = "Dog", **settings: Any) -> ChatLocal:
    """Over a model that was trained for tools; answers are the arguments of calls to `name`."""
    calls = [f'<tool_call>\n{{"name": "{name}", "arguments": {answer}' for answer in answers or (TEXT,)]
    whole = [f"{call}}}\n</tool_call>" if call.endswith("}") else call for call in calls]
    return ChatLocal(engine=scripted_engine(*whole, template=HERMES, context_length=4096), **settings)


class TestFunctionCalling:
    @pytest.mark.parametrize("kind", SCHEMAS)
    @pytest.mark.parametrize("strict", [None, True, False])
    async def test_every_kind_of_schema(self, kind: str, strict: bool | None) -> None:
        schema, expected = SCHEMAS[kind]
        name = {"pydantic.v1": "OldDog", "typeddict": "DogDict"}.get(kind, "Dog")
        model = trained(name=name)
        chain = model.with_structured_output(schema, method="function_calling", strict=strict)
        assert chain.invoke("Tell me about Harry.") == expected
        assert await chain.ainvoke("Tell me about Harry.") == expected
        constraint = json.loads(backend_of(model.engine).requests[-1].constraint_spec.source)
        assert [set(own["properties"]) for own in constraint["schemas"].values()] == [{"name", "age", "foods"}]
        assert f'"name": "{name}"' in prompt(model)

        values = list(chain.stream("Tell me about Harry."))
        assert len(values) > 3
        assert values[-1] == expected
        assert {type(value) for value in values} == {type(expected)}
        assert [value async for value in chain.astream("Tell me about Harry.")] == values

    def test_tells_traces_of_its_schema(self) -> None:
        bound = trained().with_structured_output(Dog, method="function_calling").first  # type: ignore[attr-defined]
        assert bound.kwargs["ls_structured_output_format"] == {"kwargs": {"method": "function_calling"}, "schema": Dog}
        assert bound.kwargs["tool_choice"] == {"type": "function", "function": {"name": "Dog"}}

    async def test_include_raw(self) -> None:
        chain = trained().with_structured_output(Dog, method="function_calling", include_raw=True)
        parts = list(chain.stream("?"))
        for result in (chain.invoke("?"), await chain.ainvoke("?"), sum(parts[1:], start=parts[0])):
            assert [call["args"] for call in result["raw"].tool_calls] == [DATA]
            assert (result["parsed"], result["parsing_error"]) == (Dog(**DATA), None)

    @pytest.mark.parametrize("wrong", [WRONG, '{"name": "Har', "{"])
    async def test_a_wrong_call_is_raised(self, wrong: str) -> None:
        chain = trained(wrong).with_structured_output(Dog, method="function_calling")
        with pytest.raises(OutputParserException):
            chain.invoke("?")
        with pytest.raises(OutputInvalid):
            await chain.ainvoke("?")
        with pytest.raises(OutputInvalid) as caught:
            list(chain.stream("?"))
        assert caught.value.raw == wrong  # without the ending that keeps it from being read
        raw = trained(wrong).with_structured_output(Dog, method="function_calling", include_raw=True)
        for result in (raw.invoke("?"), list(raw.stream("?"))[-1]):
            assert result["parsed"] is None
            assert isinstance(result["parsing_error"], OutputInvalid)

    def test_an_answer_without_a_call_is_raised(self) -> None:
        engine = scripted_engine("I will not.", template=HERMES, context_length=4096)
        with pytest.raises(OutputInvalid):
            ChatLocal(engine=engine).with_structured_output(Dog, method="function_calling").invoke("?")

    def test_streaming_inside_of_invoke_changes_nothing(self) -> None:
        chain = trained(streaming=True).with_structured_output(Dog, method="function_calling")
        assert chain.invoke("?") == Dog(**DATA)
        cut = trained('{"name": "Har', streaming=True).with_structured_output(Dog, method="function_calling")
        with pytest.raises(OutputInvalid):
            cut.invoke("?")

    def test_shows_the_model_what_was_wrong(self) -> None:
        model = trained(WRONG, TEXT, max_retries=1)
        assert model.with_structured_output(Dog, method="function_calling").invoke("Who is it?") == Dog(**DATA)
        again = prompt(model)
        assert again.index("Who is it?") < again.index('"age": "old"') < again.index("valid integer")
        assert "<tool_response>" in again

    @pytest.mark.parametrize("schema", [None, {"type": "array", "items": {"type": "integer"}}])
    def test_wants_an_object(self, schema: Any) -> None:
        with pytest.raises(UnsupportedInput, match=r"needs a schema|are an object"):
            trained().with_structured_output(schema, method="function_calling")


class TestRepair:
    def test_shows_the_model_what_was_wrong(self) -> None:
        model = chat(WRONG, TEXT, max_retries=1)
        assert model.with_structured_output(Dog).invoke([HumanMessage("Who is it?")]) == Dog(**DATA)
        assert len(backend_of(model.engine).requests) == 2
        again = prompt(model)
        assert again.index("Who is it?") < again.index(WRONG) < again.index("valid integer")

    async def test_of_an_async_call_and_with_raw(self) -> None:
        model = chat(WRONG, TEXT, max_retries=1)
        result = await model.with_structured_output(Dog, include_raw=True).ainvoke("Who is it?")
        assert (result["parsed"], result["parsing_error"]) == (Dog(**DATA), None)

    async def test_every_try_stands_in_the_raw_message(self) -> None:
        for method in ("invoke", "ainvoke"):
            model = chat(WRONG, "{}", TEXT, max_retries=3)
            chain = model.with_structured_output(Dog, include_raw=True)
            result = chain.invoke("?") if method == "invoke" else await chain.ainvoke("?")
            assert set(result) == {"raw", "parsed", "parsing_error"}
            tries = result["raw"].response_metadata["tries"]
            assert [one["answer"] for one in tries] == [WRONG, "{}", TEXT]
            assert [set(one) for one in tries] == [{"answer", "error"}] * 3
            assert "valid integer" in tries[0]["error"]
            assert "/name: Field required" in tries[1]["error"]
            assert tries[2]["error"] is None
            assert result["raw"].content == TEXT
            used = [len(request.prompt_ids) for request in backend_of(model.engine).requests]
            usage = result["raw"].usage_metadata
            assert (len(used), usage["input_tokens"]) == (3, sum(used))
            assert usage["output_tokens"] == sum(len(spell(answer)) for answer in (WRONG, "{}", TEXT))
            assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

    @pytest.mark.parametrize("retries", [0, 1])
    def test_a_single_try_stands_there_too(self, retries: int) -> None:
        result = chat(max_retries=retries).with_structured_output(Dog, include_raw=True).invoke("?")
        assert result["raw"].response_metadata["tries"] == [{"answer": TEXT, "error": None}]

    def test_the_tries_of_calls_are_their_arguments(self) -> None:
        model = trained(WRONG, TEXT, max_retries=1)
        chain = model.with_structured_output(Dog, method="function_calling", include_raw=True)
        tries = chain.invoke("?")["raw"].response_metadata["tries"]
        assert [json.loads(one["answer"]) for one in tries] == [json.loads(WRONG), DATA]
        assert [one["error"] is None for one in tries] == [False, True]

    def test_ends_after_max_retries(self) -> None:
        model = chat(WRONG, max_retries=2)
        with pytest.raises(OutputInvalid, match=r"age.*\(after 3 tries\)") as caught:
            model.with_structured_output(Dog).invoke("?")
        assert len(backend_of(model.engine).requests) == 3
        assert [one.answer for one in caught.value.tries] == [WRONG] * 3
        same = pickle.loads(pickle.dumps(caught.value))
        assert (type(same), same.tries, same.raw) == (StructuredOutputInvalid, caught.value.tries, WRONG)
        raw = chat(WRONG, max_retries=2).with_structured_output(Dog, include_raw=True).invoke("?")
        assert raw["parsing_error"].tries == caught.value.tries
        assert [Try(**one) for one in raw["raw"].response_metadata["tries"]] == list(caught.value.tries)

    @pytest.mark.parametrize("form", ["invoke", "ainvoke"])
    async def test_ends_where_the_context_has_no_room_for_another(self, form: str) -> None:
        """The conversation grows by each answer that was refused, and the reason."""
        model = ChatLocal(engine=scripted_engine(WRONG, context_length=700), max_retries=50)
        chain = model.with_structured_output({"type": "object", "required": ["x" * 60]})
        with pytest.raises(OutputInvalid) as caught:
            await chain.ainvoke("?") if form == "ainvoke" else chain.invoke("?")
        assert 1 < len(caught.value.tries) == len(backend_of(model.engine).requests) < 50

    async def test_streams_raise_with_their_try(self) -> None:
        for settings in ({}, {"max_retries": 2}):
            chain = chat(WRONG, **settings).with_structured_output(Dog)
            with pytest.raises(OutputInvalid, match="after 1 try") as caught:
                list(chain.stream("?"))
            assert [one.answer for one in caught.value.tries] == [WRONG]
            with pytest.raises(OutputInvalid) as cut:
                _ = [value async for value in chat(max_tokens=4).with_structured_output(Dog).astream("?")]
            assert "max_tokens" in (cut.value.tries[0].error or "")

    async def test_streams_with_raw_have_their_try(self) -> None:
        for answer, call in ((TEXT, chat), (WRONG, chat), (TEXT, trained), (WRONG, trained)):
            method: Any = "function_calling" if call is trained else "json_schema"
            chain = call(answer).with_structured_output(Dog, method=method, include_raw=True)
            parts = list(chain.stream("?"))
            for whole in (parts, [part async for part in chain.astream("?")]):
                total = sum(whole[1:], start=whole[0])
                (one,) = total["raw"].response_metadata["tries"]
                assert json.loads(one["answer"]) == json.loads(answer)
                assert (one["error"] is None) is (answer == TEXT)
                assert total["raw"].usage_metadata["output_tokens"] > 0

    def test_is_not_tried_where_max_tokens_was_the_trouble(self) -> None:
        model = chat(max_retries=2, max_tokens=4)
        with pytest.raises(OutputInvalid, match="raise max_tokens"):
            model.with_structured_output(Dog).invoke("?")
        assert len(backend_of(model.engine).requests) == 1

    def test_is_not_tried_unless_asked_for(self) -> None:
        model = chat(WRONG, TEXT)
        with pytest.raises(OutputInvalid):
            model.with_structured_output(Dog).invoke("?")

    def test_catches_what_a_grammar_cannot_say(self) -> None:
        class Adult(BaseModel):
            age: int

            @field_validator("age")
            @classmethod
            def grown_up(cls, age: int) -> int:
                if age % 2:
                    raise ValueError("age must be even")
                return age

        model = chat('{"age": 3}', '{"age": 4}', max_retries=1)
        chain = RunnableLambda(lambda text: f"How old? {text}") | model.with_structured_output(Adult)
        assert chain.invoke("Now.") == Adult(age=4)
        assert "age must be even" in prompt(model)

    def test_works_in_batches_and_streams_go_unrepaired(self) -> None:
        model = chat(WRONG, TEXT, max_retries=1)
        assert model.with_structured_output(Dog).batch(["?"]) == [Dog(**DATA)]
        values = list(model.with_structured_output(Dog).stream("?"))
        assert values[-1] == Dog(**DATA)
        assert len(values) > 3


async def test_the_raw_message_says_what_validation_alone_sees_to() -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    chain = chat('{"tags": []}').with_structured_output(schema, include_raw=True)
    parts = list(chain.stream("?"))
    for result in (chain.invoke("?"), await chain.ainvoke("?"), sum(parts[1:], start=parts[0])):
        assert result["raw"].response_metadata["left_to_validation"] == ["uniqueItems at /properties/tags"]
    assert (
        "left_to_validation"
        not in chat().with_structured_output(Dog, include_raw=True).invoke("?")["raw"].response_metadata
    )


@pytest.mark.parametrize("settings", [{}, {"max_retries": 1}])
@pytest.mark.parametrize("include_raw", [False, True])
def test_closing_a_stream_ends_the_request(settings: dict[str, Any], include_raw: bool) -> None:
    model = chat("[" + "true, " * 200 + "true]", max_tokens=1000, **settings)
    schema = {"type": "array", "items": {"type": "boolean"}}
    values = model.with_structured_output(schema, include_raw=include_raw).stream("Go on.")
    next(values)
    values.close()  # type: ignore[attr-defined]
    backend = backend_of(model.engine)
    assert (backend.closed, backend.running) == (1, 0)
    assert backend.steps < 20


def test_what_is_no_json_schema_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedSchema, match="/properties"):
        chat().with_structured_output({"type": "object", "properties": ["name"]}).invoke("hi")


def test_typed_dicts_with_fields_that_may_be_missing() -> None:
    class Partly(TypedDict):
        name: str
        color: NotRequired[str]

    class Wholly(TypedDict, total=False):
        name: str

    for kind in (Partly, Wholly):
        model = ChatLocal(engine=scripted_engine('{"name": "Rex"}'))
        assert model.with_structured_output(kind).invoke("hi") == {"name": "Rex"}
    with pytest.raises(OutputInvalid, match="name"):
        ChatLocal(engine=scripted_engine("{}")).with_structured_output(Partly).invoke("hi")


def test_a_setting_of_the_model_is_pointed_out() -> None:
    with pytest.raises(UnsupportedInput, match=r"ChatLocal\(max_retries=\.\.\.\)"):
        chat().with_structured_output(Dog, max_retries=2)
