"""What a model may write with constrain=True: the encoding of its schema, whatever the model would rather write."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from langchain_core.language_models import FakeListChatModel
from pydantic import BaseModel, Field

from chatlocal import ChatLocal, Engine
from chatlocal.engine import Sampling, constraints
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors import (
    Bool,
    Number,
    Object,
    Option,
    Selection,
    Text,
    create_extraction_chain,
    from_pydantic,
)
from chatlocal.extractors.encoders import CSVEncoder, JSONEncoder, XMLEncoder
from chatlocal.extractors.node_examples import examples_of
from tests.extractors.kor_nodes import GOLDEN, schema_of
from tests.tiny import tiny_model, tiny_tokenizer

PERSON = Object(
    id="person",
    many=True,
    attributes=(
        Text(id="name", examples=(("Ann is here", "Ann"),)),
        Number(id="age"),
        Bool(id="married", examples=(("Bo is single", False),)),
        Selection(id="mood", options=(Option(id="glad"), Option(id='s"a|d'))),
    ),
)
CONTACT = Object(
    id="contact",
    attributes=(
        Text(id="name", many=True),
        Object(id="address", many=True, attributes=(Text(id="street"), Number(id="zip", required=True))),
    ),
)
ENCODERS: dict[str, Any] = {
    "json": JSONEncoder,
    "bare json": lambda node: JSONEncoder(node, use_tags=False),
    "csv": CSVEncoder,
    "csv in tags": lambda node: CSVEncoder(node, use_tags=True),
    "xml": XMLEncoder,
}


def accepts(encoder: Any, text: str) -> bool:
    return constraints.compile(encoder.spec(), tiny_tokenizer()).accepts(text)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_example_of_a_prompt_may_be_written(name: str) -> None:
    encoder = ENCODERS[name](PERSON)
    answers = [answer for _, answer in examples_of(PERSON)]
    assert len(answers) == 2
    for answer in [*answers, {"person": [{"name": "A & B", "age": -1.5, "mood": 's"a|d'}, {"married": True}]}]:
        assert accepts(encoder, encoder.encode(answer)), encoder.encode(answer)


@pytest.mark.parametrize("schema", GOLDEN["schemas"])
@pytest.mark.parametrize("kind", [JSONEncoder, XMLEncoder])
def test_the_examples_of_the_golden_schemas_may_be_written(schema: str, kind: Any) -> None:
    node, _ = schema_of(schema)
    node = node.model_copy(update={"many": True})
    for _, answer in examples_of(loosened(node)):
        if answer or kind is JSONEncoder:  # in XML nothing is no answer
            assert accepts(kind(loosened(node)), kind(node).encode(answer))


def loosened(node: Any) -> Any:
    """Examples may leave out what an answer may not."""
    attributes = tuple(each.model_copy(update={"required": False}) for each in node.attributes)
    return node.model_copy(update={"attributes": attributes})


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("json", '<json>{"person": [{"age": "3"}]}</json>'),
        ("json", '<json>{"person": {"age": 3}}</json>'),
        ("json", '<json>{"person": [{"pet": 3}]}</json>'),
        ("json", '<json>{"person": [{"mood": "angry"}]}</json>'),
        ("json", '{"person": []}'),
        ("json", "<json>{}</json>"),  # no example has nothing to extract
        ("bare json", '<json>{"person": []}</json>'),
        ("csv", "name|age|married|mood\nAnn|x||\n"),
        ("csv", "name|age|married|mood\nAnn|3|\n"),
        ("csv", "name|age\nAnn|3\n"),
        ("csv", "name|age|married|mood\nA\nB|3||\n"),
        ("csv in tags", "name|age|married|mood\nAnn|3||\n"),
        ("xml", "<person><age>x</age></person>"),
        ("xml", "<person><mood>angry</mood></person>"),
        ("xml", "<person><name>A</name><name>B</name></person>"),
        ("xml", "<person><name>A<b></name></person>"),
        ("xml", ""),
    ],
)
def test_what_may_not_be_written(name: str, refused: str) -> None:
    assert not accepts(ENCODERS[name](PERSON), refused)


def test_nothing_may_be_written_where_an_example_has_nothing() -> None:
    node = PERSON.model_copy(update={"examples": (("The sea is blue", []),)})
    assert accepts(JSONEncoder(node), "<json>{}</json>")


@pytest.fixture(scope="module")
def random_model() -> Any:
    """A model that knows nothing: under a grammar it writes about anything that the grammar lets it."""
    engine = Engine(tiny_model(max_position_embeddings=4096), tiny_tokenizer())
    yield engine
    engine.close()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "settings", [{"encoder_or_encoder_class": "json"}, {"encoder_or_encoder_class": "xml"}, {}, {"use_tags": True}]
)
def test_whatever_is_written_is_read(random_model: Engine, settings: dict[str, Any], seed: int) -> None:
    llm = ChatLocal(engine=random_model, temperature=1.5, seed=seed, max_tokens=150)
    for node in (PERSON, CONTACT):
        if node is CONTACT and "encoder_or_encoder_class" not in settings:
            continue
        found = create_extraction_chain(llm, node, constrain=True, **settings).invoke("Ann is 31.")
        assert [error for error in found["errors"] if "max_tokens" not in str(error)] == []
        assert node.id in found["data"]


TIGHT = Object(
    id="visit",
    many=True,
    attributes=(
        Number(id="age", required=True),
        Text(id="name", required=True),
        Object(
            id="seat",
            required=True,
            attributes=(
                Bool(id="taken", required=True),
                Selection(id="z", required=True, options=(Option(id="left"), Option(id="right"))),
            ),
        ),
        Object(id="stops", many=True, attributes=(Text(id="at"), Number(id="nth", required=True))),
    ),
)


@pytest.mark.parametrize(
    ("encoder", "text"),
    [
        (JSONEncoder(TIGHT), '<json>{"visit": []}</json>'),
        (
            XMLEncoder(TIGHT),
            "<visit><age>0</age><name>-</name><seat><taken>True</taken><z>left</z></seat>"
            "<stops><at></at><nth>0</nth></stops></visit>",
        ),
        (CSVEncoder(PERSON), "name|age|married|mood\n"),
        (CSVEncoder(PERSON, use_tags=True), "<csv>name|age|married|mood\n</csv>"),
        (CSVEncoder(PERSON.model_copy(update={"many": False})), "name|age|married|mood\n|||\n"),
    ],
    ids=["json", "xml", "csv", "csv in tags", "one row"],
)
def test_the_shortest_answer_is_found(encoder: Any, text: str) -> None:
    """A request whose max_tokens is below it is refused, and an answer is led to its end when its tokens run out."""
    tokenizer = tiny_tokenizer()
    shortest = constraints.compile(encoder.spec(), tokenizer).shortest
    assert shortest is not None
    assert tokenizer.decode(shortest) == text


class Trip(BaseModel):
    place: str = Field(min_length=2, max_length=12)
    nights: int = Field(ge=1, le=30)
    board: Literal["none", "half", "full"] | None = None


@pytest.mark.parametrize("seed", range(4))
def test_the_class_behind_a_validator_holds_too(random_model: Engine, seed: int) -> None:
    node, validator = from_pydantic(Trip, many=True)
    llm = ChatLocal(engine=random_model, temperature=1.5, seed=seed, max_tokens=150)
    chain = create_extraction_chain(llm, node, encoder_or_encoder_class="json", validator=validator, constrain=True)
    found = chain.invoke("Two weeks in Rome.")
    assert [error for error in found["errors"] if "max_tokens" not in str(error)] == []
    assert len(found["validated_data"]) == len(found["data"]["trip"])


@pytest.mark.parametrize("settings", [{"encoder_or_encoder_class": "json"}, {"encoder_or_encoder_class": "xml"}, {}])
def test_on_the_embedded_model(embedded_engine: Engine, settings: dict[str, Any]) -> None:
    node = Object(
        id="person",
        many=True,
        attributes=(Text(id="name"), Number(id="age")),
        examples=(("Jo Smith is 9.", [{"name": "Jo Smith", "age": 9}]),),
    )
    chain = create_extraction_chain(ChatLocal(engine=embedded_engine, temperature=0), node, constrain=True, **settings)
    found = chain.invoke("Anna Berg is 31 years old.")
    assert found["errors"] == []
    assert found["data"]["person"][0] == {"name": "Anna Berg", "age": 31}


def test_other_models_cannot_be_held_to_a_grammar() -> None:
    with pytest.raises(UnsupportedInput, match="constrain=True takes a ChatLocal, and FakeListChatModel"):
        create_extraction_chain(FakeListChatModel(responses=[""]), PERSON, constrain=True)


def test_an_answer_that_ran_out_of_tokens_says_so(random_model: Engine) -> None:
    """The settings of a model that was bound stay, and what was written to end the answer is not passed off as data."""
    shortest = constraints.compile(CSVEncoder(PERSON).spec(), tiny_tokenizer()).shortest
    assert shortest is not None
    said = []
    for seed in range(4):
        llm = ChatLocal(engine=random_model, temperature=1.5, seed=seed).bind(max_tokens=len(shortest) + 8)
        found = create_extraction_chain(llm, PERSON, constrain=True).invoke("Ann")
        assert "person" in found["data"]
        said += [str(error).partition(":")[0] for error in found["errors"]]
    assert set(said) == {"The answer reached max_tokens"}


@pytest.mark.parametrize("seed", range(4))
def test_lists_of_json_in_other_text_are_within_limits(random_model: Engine, seed: int) -> None:
    schema = {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}, "minItems": 1}
    spec = constraints.marked('start: "<a>" list "</a>"', {}, {"list": schema}, limits=constraints.Limits(items=3))
    assert constraints.Spec.from_json(spec.to_json()) == spec
    sampling = Sampling(temperature=1.5, seed=seed, max_tokens=100)
    answer = random_model.generate([{"role": "user", "content": "Hi"}], spec=spec, sampling=sampling).message.text
    assert 1 <= len(json.loads(answer.removeprefix("<a>").removesuffix("</a>"))) <= 3
