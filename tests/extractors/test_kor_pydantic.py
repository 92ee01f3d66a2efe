"""Nodes of Pydantic classes, and what becomes of the data that validators get."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional, Union

import pytest
from langchain_core.language_models import FakeListChatModel
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError, create_model

from chatlocal.extractors import Bool, Number, Selection, Text, create_extraction_chain, from_pydantic
from chatlocal.extractors.encoders import ParseError, UnsupportedNode
from chatlocal.extractors.nodes import Dictionary, Node, Object
from chatlocal.extractors.type_descriptions import bullet_point, typescript


class Grade(Enum):
    low = 1
    high = 2


class Street(BaseModel):
    name: str
    number: int | None = None


UserId = NewType("UserId", int)


def attribute_of(annotation: Any, **settings: Any) -> Any:
    """The node of a field of a type."""
    model: Any = create_model("Model", value=(annotation, Field(**settings)))
    [attribute] = from_pydantic(model)[0].attributes
    return attribute


@pytest.mark.parametrize(
    ("annotation", "kind", "many"),
    [
        (str, Text, False),
        (Optional[str], Text, False),  # noqa: UP045
        (str | None, Text, False),
        (None | str, Text, False),
        (Union[str, None], Text, False),  # noqa: UP007
        (Annotated[str | None, Field(max_length=3)], Text, False),
        (datetime.date, Text, False),
        (int, Number, False),
        (float | None, Number, False),
        (int | float, Number, False),
        (Decimal, Number, False),
        (UserId, Number, False),
        (bool | None, Bool, False),
        (Literal[True, False], Bool, False),
        (Literal["a", "b"], Selection, False),
        (Literal["a", None], Selection, False),
        (Grade | None, Selection, False),
        (list[Literal["a", "b"]], Selection, True),
        (list[str] | None, Text, True),
        (list[str | None], Text, True),
        (Sequence[int], Number, True),
        (set[int], Number, True),
        (tuple[float, ...], Number, True),
        (tuple[float, float], Number, True),
        (list, Text, True),
        (str | list[str], Text, True),
        (Street, Object, False),
        (Street | None, Object, False),
        (list[Street], Object, True),
        (dict[str, int], Dictionary, False),
        (dict[str, Street] | None, Dictionary, False),
        (dict, Dictionary, False),
        (list[dict[str, bool]], Dictionary, True),
        (int | str, Text, False),
        (Any, Text, False),
    ],
)
def test_the_node_of_a_type(annotation: Any, kind: type[Node], many: bool) -> None:
    node = attribute_of(annotation, description="what it is")
    assert type(node) is kind
    assert node.many is many
    assert node.description == "what it is"


@pytest.mark.parametrize("annotation", [Street | str, Street | Grade, list[list[int]], list[Street | int]])
def test_a_type_that_is_no_node(annotation: Any) -> None:
    with pytest.raises(UnsupportedNode, match=r"Model\.value: a (union|list of lists)"):
        attribute_of(annotation)


class Tree(BaseModel):
    children: list[Tree] = []


def test_a_class_in_itself_is_no_node() -> None:
    with pytest.raises(UnsupportedNode, match=r"Tree\.children: Tree has itself in it"):
        from_pydantic(Tree)


def test_options_keep_the_values_behind_their_ids() -> None:
    node = attribute_of(Grade | None)
    assert [(option.id, option.means) for option in node.options] == [("1", 1), ("2", 2)]
    node = attribute_of(Literal["a", 2, None])
    assert [(option.id, option.means) for option in node.options] == [("a", "a"), ("2", 2)]


def test_what_is_required() -> None:
    model: Any = create_model("Model", a=(str, ...), b=(str, "x"), c=(str | None, ...), d=(str | None, None))
    assert [attribute.required for attribute in from_pydantic(model)[0].attributes] == [True, False, False, False]


def test_examples_are_pairs_of_a_text_and_a_value() -> None:
    node = attribute_of(int, examples=[("three kg", 3), 7, "seven"])
    assert node.examples == (("three kg", 3),)


def test_descriptions_of_dictionaries() -> None:
    class Exam(BaseModel):
        marks: dict[str, list[int]] = Field(description="by subject")
        streets: dict[str, Street]

    node, _ = from_pydantic(Exam)
    assert typescript(node) == (
        "```TypeScript\n\nexam: { // \n"
        " marks: Record<string, Array<number>> // by subject\n"
        " streets: Record<string, { // \n  name: string // \n  number: number // \n }>\n"
        "}\n```\n"
    )
    assert bullet_point(node).splitlines()[1:3] == ["*  marks: Dictionary # by subject", "*   value: Number # "]


def extracted(model: type[BaseModel], answer: str, many: bool = False, encoder: str = "json", **settings: Any) -> Any:
    node, validator = from_pydantic(model, many=many, **settings)
    llm = FakeListChatModel(responses=[answer])
    return create_extraction_chain(llm, node, encoder_or_encoder_class=encoder, validator=validator).invoke("a text")


def test_validators_and_aliases() -> None:
    def shout(value: str) -> str:
        return value.upper()

    class Dog(BaseModel):
        name: Annotated[str, AfterValidator(shout)] = Field(alias="dogName")
        age: int = Field(validation_alias=AliasChoices("years", "yrs"))

    for answer in ('{"dog": {"name": "Rex", "age": "3"}}', '{"dog": {"dogName": "Rex", "yrs": 3}}'):
        found = extracted(Dog, answer)
        assert found["errors"] == []
        assert (found["validated_data"].name, found["validated_data"].age) == ("REX", 3)


def test_nested_aliases() -> None:
    class Inner(BaseModel):
        zip_code: str = Field(alias="zipCode")

    class Outer(BaseModel):
        inner: list[Inner] = Field(alias="theInner")

    found = extracted(Outer, '{"outer": {"inner": [{"zip_code": 12345}]}}')
    assert found["validated_data"].inner[0].zip_code == "12345"


def test_an_empty_cell_of_a_field_with_a_default_is_the_default() -> None:
    class Dog(BaseModel):
        name: str
        good: bool = True
        age: int | None = 7

    found = extracted(Dog, "name|good|age\nRex||\n", many=True, encoder="csv")
    assert found["errors"] == []
    assert found["validated_data"] == [Dog(name="Rex", good=True, age=None)]


def test_one_record_in_a_table() -> None:
    found = extracted(Street, "name|number\nMain|5\n", encoder="csv")
    assert found["validated_data"] == Street(name="Main", number=5)
    assert found["errors"] == []
    found = extracted(Street, "name|number\n", encoder="csv")
    assert found["validated_data"] is None
    assert len(found["errors"]) == 1


def test_a_dictionary_and_an_enum_of_numbers() -> None:
    class Exam(BaseModel):
        model_config = ConfigDict(strict=False)

        marks: dict[str, Grade]

    found = extracted(Exam, '{"exam": {"marks": {"art": "2", "math": 1}}}')
    assert found["data"] == {"exam": {"marks": {"art": 2, "math": 1}}}
    assert found["validated_data"].marks == {"art": Grade.high, "math": Grade.low}


def test_each_record_that_does_not_validate_is_named() -> None:
    found = extracted(Street, '{"street": [{"name": "A"}, {"number": "x"}, {}]}', many=True)
    assert found["validated_data"] == [Street(name="A")]
    assert [type(error) for error in found["errors"]] == [ParseError, ParseError]
    assert "The record at 1 is no Street: name: Field required; number:" in str(found["errors"][0])
    assert isinstance(found["errors"][0].__cause__, ValidationError)


def test_instances_and_enums_may_be_examples() -> None:
    class Dog(BaseModel):
        grade: Grade
        born: datetime.date

    example = ("a good dog", Dog(grade=Grade.high, born=datetime.date(2020, 1, 2)))
    node, _ = from_pydantic(Dog, examples=[example])
    chain = create_extraction_chain(FakeListChatModel(responses=[""]), node, encoder_or_encoder_class="json")
    shown = chain.prompt.format_prompt(text="x").to_string()
    assert '<json>{"dog": {"grade": 2, "born": "2020-01-02"}}</json>' in shown
