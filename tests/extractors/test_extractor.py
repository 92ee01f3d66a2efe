"""Extractor: schemas in, records out, by each of its three ways to ask a model."""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from typing import Annotated, Any

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import MetadataMode, TextNode
from pydantic import AfterValidator, BaseModel, Field

from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.extractors import Extractor
from tests.extractors.answer_script import knowing_engine, recorded
from tests.scripted import backend_of, scripted_engine


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Owner(BaseModel):
    name: str
    city: str | None = None


class Dog(BaseModel):
    name: str
    age: int | None = None
    size: Size = Size.SMALL
    owner: Owner | None = None


class Cat(BaseModel):
    name: str


def lower(value: str) -> str:
    if value != value.lower():
        raise ValueError("write it in lower case")
    return value


class Colour(BaseModel):
    colour: Annotated[str, AfterValidator(lower)]


REX = {"name": "Rex", "age": 3, "size": "large", "owner": None}
TEXT = "Rex is a large dog of 3 years."


# prompts: any chat model of LangChain


def test_one_class_gives_one_record_with_its_words() -> None:
    found = Extractor(Dog, recorded(json.dumps(REX))).extract(TEXT, document="a.txt")
    assert found.data == REX
    assert found.value == Dog(name="Rex", age=3, size=Size.LARGE)
    [record] = found.records
    assert (record.kind, record.document, record.value) == ("Dog", "a.txt", found.value)
    words = {field.pointer: TEXT[field.span.start : field.span.end] for field in record.fields if field.span}
    assert words == {"/name": "Rex", "/age": "3", "/size": "large"}
    assert TEXT[record.start : record.end] == "Rex is a large dog of 3"


def test_a_list_gives_its_records_in_order() -> None:
    found = Extractor(list[Cat], recorded('[{"name": "Mia"}, {"name": "Tom"}]')).extract("Mia and Tom")
    assert found.value == [Cat(name="Mia"), Cat(name="Tom")]
    assert [record.data for record in found.records] == found.data == [{"name": "Mia"}, {"name": "Tom"}]


def test_several_classes_give_one_list_whose_records_say_their_kind() -> None:
    answer = '{"Dog": [{"name": "Rex"}], "Cat": [{"name": "Mia"}, {"name": "Tom"}]}'
    found = Extractor((Dog, Cat), recorded(answer)).extract("Rex, Mia, Tom")
    assert found.value == [Dog(name="Rex"), Cat(name="Mia"), Cat(name="Tom")]
    assert [record.kind for record in found.records] == ["Dog", "Cat", "Cat"]


def test_a_json_schema_of_an_array_gives_a_record_for_each_item() -> None:
    schema = {
        "type": "array",
        "items": {"$ref": "#/$defs/Dog"},
        "$defs": {
            "Dog": {"type": "object", "properties": {"owner": {"$ref": "#/$defs/Owner"}}, "required": ["owner"]},
            "Owner": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }
    found = Extractor(schema, recorded('[{"owner": {"name": "Ann"}}]')).extract("Ann's dog")
    assert found.value == found.data == [{"owner": {"name": "Ann"}}]
    assert [(record.kind, record.fields[0].pointer) for record in found.records] == [("Dog", "/owner/name")]


def test_words_and_fences_around_the_answer_are_read_over() -> None:
    answer = 'Sure! Here it is:\n```json\n{"name": "Mia",}\n```\nAnything else?'
    assert Extractor(Cat, recorded(answer)).extract("Mia").value == Cat(name="Mia")


def test_an_answer_that_a_validator_refuses_goes_back_with_the_reason() -> None:
    model = recorded('{"colour": "Brown"}', '{"colour": "brown"}')
    found = Extractor(Colour, model).extract("a Brown dog")
    assert found.data == {"colour": "brown"}
    assert found.raw == ('{"colour": "Brown"}', '{"colour": "brown"}')
    assert "write it in lower case" in str(model.asked[1][-1].content)


def test_what_never_validates_is_a_failure_and_not_an_empty_result() -> None:
    found = Extractor(Colour, recorded("no idea", '{"colour": "Brown"}'), max_retries=1).extract("a Brown dog")
    assert (found.data, found.value, found.records) == (None, None, ())
    [failure] = found.failures
    assert (failure.error, failure.raw) == ("OutputInvalid", '{"colour": "Brown"}')
    assert "lower case" in failure.message


def test_examples_and_instructions_are_shown() -> None:
    model = recorded('{"name": "Mia"}')
    Extractor(Cat, model, examples=[("Tom sleeps.", Cat(name="Tom"))], instructions="Names only.").extract("Mia eats.")
    texts = [str(message.content) for message in model.asked[0]]
    assert texts[0] == "Names only."
    assert texts[2] == '{"name": "Tom"}'
    assert "Tom sleeps." in texts[1]
    assert "Mia eats." in texts[3]


def test_a_value_of_an_example_that_is_not_in_the_text_is_flagged() -> None:
    found = Extractor(Cat, recorded('{"name": "Tom"}'), examples=[("Tom sleeps.", {"name": "Tom"})]).extract(
        "Mia eats."
    )
    assert set(found.records[0].fields[0].flags) == {"ungrounded", "copied from an example"}


@pytest.mark.parametrize("example", ["Tom", ("Tom",), (1, {"name": "Tom"})])
def test_what_is_no_example_is_refused(example: object) -> None:
    with pytest.raises(UnsupportedInput, match="pair"):
        Extractor(Cat, recorded(), examples=[example])  # type: ignore[list-item]


def test_an_example_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OutputInvalid):
        Extractor(Cat, recorded(), examples=[("Tom", {"title": "Tom"})])


@pytest.mark.parametrize("settings", [{"grounded": True}, {"method": "choose"}])
def test_what_needs_a_model_of_ours_is_refused_with_others(settings: dict[str, object]) -> None:
    with pytest.raises(UnsupportedInput, match="prompt alone"):
        Extractor(Cat, recorded(), **settings)  # type: ignore[arg-type]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match="chat model"):
        Extractor(Cat, "gpt")


def test_no_class_and_two_of_one_name_are_refused() -> None:
    with pytest.raises(UnsupportedInput):
        Extractor([], recorded())
    with pytest.raises(UnsupportedInput, match="one name"):
        Extractor([Cat, Cat], recorded())


# frameworks


def test_a_prompt_goes_into_an_extractor_and_on() -> None:
    prompt = ChatPromptTemplate.from_messages([("user", "About {animal}")])
    model = recorded('{"name": "Mia"}', '{"name": "Mia"}')
    chain = prompt | Extractor(Cat, model) | (lambda found: found.value.name)
    assert chain.invoke({"animal": "Mia"}) == "Mia"
    assert "About Mia" in str(model.asked[0][-1].content)


@pytest.mark.parametrize(
    ("given", "document"),
    [
        ("Mia", None),
        ({"text": "Mia"}, None),
        (Document("Mia", id="7"), "7"),
        (Document("Mia", metadata={"source": "a"}), "a"),
    ],
)
def test_a_runnable_takes_texts_dicts_and_documents(given: object, document: str | None) -> None:
    found = Extractor(Cat, recorded('{"name": "Mia"}')).runnable().invoke(given)
    assert (found.value, found.document) == (Cat(name="Mia"), document)


def test_a_runnable_refuses_a_dict_without_text() -> None:
    with pytest.raises(UnsupportedInput, match="text"):
        Extractor(Cat, recorded()).runnable().invoke({"question": "Mia"})


def test_a_pipeline_puts_records_into_the_metadata_of_nodes() -> None:
    nodes = [TextNode(text="Mia eats."), TextNode(text="Nobody.")]
    model = recorded('{"name": "Mia"}', "nothing")
    transform = Extractor(Cat, model, max_retries=0).transform("cats")
    transform.extractor.batch = lambda texts: [transform.extractor.extract(text) for text in texts]  # in order
    done = IngestionPipeline(transformations=[transform]).run(nodes=nodes)
    assert done[0].metadata == {"cats": [{"name": "Mia"}]}
    assert done[1].metadata["cats"] == []
    assert "JSON" in done[1].metadata["cats_failures"][0]
    assert done[0].get_content(metadata_mode=MetadataMode.EMBED) == "Mia eats."


def test_async_and_batches_give_what_extract_gives() -> None:
    answer = '{"name": "Mia"}'
    model = recorded(*[answer] * 6)
    extractor = Extractor(Cat, model)
    assert asyncio.run(extractor.aextract("Mia")).value == Cat(name="Mia")
    assert [found.value for found in extractor.batch(["Mia", "Mia"], max_concurrency=2)] == [Cat(name="Mia")] * 2
    found = asyncio.run(extractor.abatch(["Mia", "Mia"], max_concurrency=1))
    assert [one.value for one in found] == [Cat(name="Mia")] * 2


# a model of ours that writes


def test_a_written_answer_is_held_to_the_schema() -> None:
    engine = scripted_engine('{"name": "Mia"}', context_length=4096)
    found = Extractor(Cat, engine, method="write").extract("Mia")
    assert found.value == Cat(name="Mia")
    assert backend_of(engine).requests[0].constraint_spec.kind == "json_schema"
    assert found.usage["completion_tokens"] > 0


def test_grounded_strings_are_held_to_the_text() -> None:
    engine = scripted_engine('{"name": "Mia"}', context_length=4096)
    Extractor(Cat, engine, method="write", grounded=True).extract("Mia eats.")
    spec = backend_of(engine).requests[0].constraint_spec
    assert spec.text == "Mia eats."
    assert json.loads(spec.source)["properties"]["name"]["x-span"] is True


def test_without_constraint_nothing_is_demanded() -> None:
    engine = scripted_engine('Well: {"name": "Mia"}', context_length=4096)
    assert Extractor(Cat, engine, constrain=False).extract("Mia").value == Cat(name="Mia")
    assert backend_of(engine).requests[0].constraint_spec is None


def test_a_written_stream_grows_and_ends_with_the_whole() -> None:
    engine = scripted_engine('[{"name": "Mia"}, {"name": "Tom"}]', context_length=4096)
    seen = list(Extractor(list[Cat], engine, method="write").stream("Mia and Tom"))
    assert [one.data for one in seen][-1] == [{"name": "Mia"}, {"name": "Tom"}]
    assert seen[-1].value == [Cat(name="Mia"), Cat(name="Tom")]
    assert any(one.data == [{"name": "Mia"}] for one in seen[:-1])
    assert all(one.value is None for one in seen[:-1])


# a model of ours whose values are chosen


def test_chosen_values_stand_in_the_text_and_the_rest_is_null() -> None:
    engine, _ = knowing_engine({"Name": "Rex", "Age": "3", "Size": "large"})
    found = Extractor(Dog, engine).extract(TEXT)
    assert found.data == REX
    assert found.raw == (json.dumps(REX),)
    sure = {field.pointer: field.confidence for field in found.records[0].fields}
    assert all(value is not None and value > 0.99 for value in sure.values())


def test_a_chosen_list_ends() -> None:
    engine, _ = knowing_engine({"Name (all)": "Mia, Tom"})
    assert Extractor(list[Cat], engine).extract("Mia met Tom in the garden.").value == [
        Cat(name="Mia"),
        Cat(name="Tom"),
    ]


def test_records_within_a_record_are_chosen_too() -> None:
    engine, _ = knowing_engine({"Name": "Rex", "Owner": "Ann Lee", "Owner name": "Ann Lee", "Owner city": "Oslo"})
    found = Extractor(Dog, engine).extract("Rex lives in Oslo with Ann Lee.")
    assert found.data["owner"] == {"name": "Ann Lee", "city": "Oslo"}


class Bounded(BaseModel):
    grade: int = Field(ge=1, le=6)


def test_a_number_that_the_schema_refuses_is_not_offered() -> None:
    engine, _ = knowing_engine({"Grade": "12"})
    assert Extractor(Bounded, engine).extract("12 pupils got a 5.").data == {"grade": 5}


def test_numbers_and_dates_are_read_as_the_text_writes_them() -> None:
    schema = {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}, "total": {"type": "number"}},
        "required": ["day", "total"],
    }
    engine, _ = knowing_engine({"Day": "3 March 2024", "Total": "1,280.50"})
    assert Extractor(schema, engine).extract("Paid 1,280.50 on 3 March 2024.").data == {
        "day": "2024-03-03",
        "total": 1280.5,
    }


def test_instructions_and_examples_stand_in_front_of_the_text() -> None:
    engine, backend = knowing_engine({"Name": "Mia"})
    Extractor(Cat, engine, instructions="Cats only.", examples=[("Tom sleeps.", {"name": "Tom"})]).extract("Mia eats.")
    assert backend.prompts[-1].startswith("Cats only.")
    assert "\n\nText: Tom sleeps.\nName: Tom\n\nText: Mia eats.\nName:" in backend.prompts[-1]


def test_a_chosen_stream_grows() -> None:
    engine, _ = knowing_engine({"Name": "Rex", "Age": "3", "Size": "large"})
    seen = [one.data for one in Extractor(Dog, engine).stream(TEXT)]
    assert seen[0] == {"name": "Rex"}
    assert seen[-1] == REX


def test_low_confidence_is_for_review() -> None:
    engine, _ = knowing_engine({"Name": "Rex", "Age": "3", "Size": "large"})
    found = Extractor(Dog, engine, min_confidence=1.01).extract(TEXT)
    assert found.data["age"] is None
    age = next(field for field in found.records[0].fields if field.pointer == "/age")
    assert (age.value, age.flags) == (3, ("low confidence",))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object", "properties": ["a"]}, "no JSON Schema, at .*properties"),
        ({"type": "objekt"}, "no JSON Schema"),
        ({"name": "string"}, "name the fields"),
        ({}, "name the fields"),
    ],
)
def test_what_is_no_schema_of_a_record_is_refused_at_once(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedInput, match=said):
        Extractor(schema)
