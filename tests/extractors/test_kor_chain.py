"""The chain around the model: what it is asked, what is made of its answer, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from langchain_core.messages import AIMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda

from chatlocal import ChatLocal
from chatlocal.engine import constraints
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.extractors import (
    Number,
    Object,
    Option,
    Selection,
    Text,
    create_extraction_chain,
    extract_from_documents,
)
from chatlocal.extractors.encoders import Encoder, JSONEncoder, ParseError
from chatlocal.extractors.nodes import as_node
from tests.scripted import scripted_engine

PERSON = Object(
    id="person",
    description="who {is} there",
    many=True,
    attributes=(Text(id="first_name"), Number(id="age")),
    examples=(("Bo {x} is 9", [{"first_name": "B{o}", "age": 9}]),),
)
ANN = {"person": [{"first_name": "Ann", "age": 31}]}
TABLE = "first_name|age\nAnn|31\n"


def answering(answer: str) -> FakeListChatModel:
    return FakeListChatModel(responses=[answer])


def echoing(answer: str) -> Runnable[Any, str]:
    """A completion model that repeats its prompt."""
    return RunnableLambda(lambda prompt: prompt.to_string() + answer)


def echoing_chat(answer: str) -> Runnable[Any, str]:
    """The same, behind a chat template."""

    def written(prompt: Any) -> str:
        turns = [f"<|im_start|>{turn.type}\n{turn.text}<|im_end|>\n" for turn in prompt.to_messages()]
        return "".join(turns) + f"<|im_start|>assistant\n{answer}"

    return RunnableLambda(written)


@pytest.mark.parametrize("echo", [echoing, echoing_chat])
@pytest.mark.parametrize("formatter", [None, "text_prefix", "triple_quotes", str.upper])
@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({}, TABLE),
        ({}, f"\n{TABLE}\nHope this helps | bye"),
        ({"use_tags": True}, f"<csv>{TABLE}</csv> Hope this helps | bye"),
        ({"encoder_or_encoder_class": "json"}, '{"person": [{"first_name": "Ann", "age": 31}]}'),
        ({"encoder_or_encoder_class": "xml"}, "<person><first_name>Ann</first_name><age>31</age></person>"),
    ],
)
def test_a_prompt_that_is_repeated_is_not_read(echo: Any, formatter: Any, settings: Any, answer: str) -> None:
    chain = create_extraction_chain(echo(answer), PERSON, input_formatter=formatter, **settings)
    found = chain.invoke("Ann is 31.")
    assert found["data"] == ANN
    assert found["errors"] == []
    assert found["raw"].endswith(answer)


def test_an_echo_without_its_beginning_is_not_read() -> None:
    llm = RunnableLambda(lambda prompt: prompt.to_string()[200:] + TABLE)
    assert create_extraction_chain(llm, PERSON).invoke("Ann is 31.")["data"] == ANN


def test_an_echo_alone_is_an_error() -> None:
    found = create_extraction_chain(echoing(""), PERSON, encoder_or_encoder_class="json").invoke("Ann is 31.")
    assert found["data"] == {}
    assert [type(error) for error in found["errors"]] == [ParseError]


def test_turns_that_a_model_makes_up_are_not_read() -> None:
    made_up = f"{TABLE}\nInput: Cy is 5\nOutput: first_name|age\nCy|5\n"
    assert create_extraction_chain(answering(made_up), PERSON).invoke("Ann is 31.")["data"] == ANN


def test_what_a_model_thinks_is_not_read() -> None:
    found = create_extraction_chain(answering(f"<think>\nfirst_name|age\nCy|5\n</think>\n{TABLE}"), PERSON).invoke("x")
    assert found["data"] == ANN


@pytest.mark.parametrize(
    ("encoder", "answer", "cut"),
    [
        ("csv", "first_name|age\nAnn|31\nBo|2", True),
        ("csv", TABLE, False),
        ("json", '{"person": []} and so on and so', False),
        ("json", '{"person": [{"first_name": "Ann"}', True),
        ("json", '{"person": [{"first_name": "Ann"}]}', False),
        ("json", "I will now", True),
        ("xml", "<person><first_name>An", True),
        ("xml", "<person><first_name>Ann</first_name></person>", False),
    ],
)
def test_an_answer_that_may_be_cut_says_so(encoder: str, answer: str, cut: bool) -> None:
    message = AIMessage(answer, response_metadata={"finish_reason": "length"})
    chain = create_extraction_chain(RunnableLambda(lambda _: message), PERSON, encoder_or_encoder_class=encoder)
    assert any("reached max_tokens" in str(error) for error in chain.invoke("x")["errors"]) is cut


def test_the_prompt_of_a_chat_model() -> None:
    chain = create_extraction_chain(answering(TABLE), PERSON)
    messages = chain.prompt.format_prompt(text="Ann {y} is 31").to_messages()
    assert [message.type for message in messages] == ["system", "human", "ai", "human"]
    assert "person: Array<{ // who {is} there" in messages[0].text
    assert [message.text for message in messages[1:]] == ["Bo {x} is 9", "first_name|age\nB{o}|9\n", "Ann {y} is 31"]


@pytest.mark.parametrize("llm", [answering(TABLE), FakeListLLM(responses=[TABLE])])
def test_every_way_to_call_it(llm: Any) -> None:
    chain = create_extraction_chain(llm, PERSON)
    expected = {"data": ANN, "raw": TABLE, "errors": [], "validated_data": {}}
    assert chain.invoke("Ann is 31.") == expected
    assert chain.invoke({"text": "Ann is 31."}) == expected
    assert chain.run("Ann is 31.") == expected
    assert chain.batch(["a", "b"]) == [expected, expected]
    assert list(chain.stream("a")) == [expected]
    assert asyncio.run(chain.ainvoke("a")) == expected
    assert (chain | RunnableLambda(lambda found: found["data"])).invoke("a") == ANN


def test_instructions_of_your_own() -> None:
    template = "Find {{these}}:\n{type_description}"
    for given in (template, PromptTemplate.from_template(template)):
        chain = create_extraction_chain(
            answering(TABLE), PERSON, instruction_template=given, type_descriptor="bullet_point"
        )
        shown = chain.prompt.format_prompt(text="hi").to_string()
        assert shown.startswith("Find {these}:\n* person: Object # who {is} there\n*  first_name: Text # \n")


def test_a_validator_of_your_own() -> None:
    class Oldest:
        def clean_data(self, data: Any) -> tuple[Any, list[Exception]]:
            return max(person["age"] for person in data), [ValueError("only one")]

    found = create_extraction_chain(answering(TABLE), PERSON, validator=Oldest()).invoke("x")
    assert found["validated_data"] == 31
    assert [str(error) for error in found["errors"]] == ["only one"]
    found = create_extraction_chain(answering("first_name|age\n"), PERSON, validator=Oldest()).invoke("x")
    assert [type(error) for error in found["errors"]] == [ValueError]  # of max(), and it is not raised


class Lines(Encoder):
    """An encoding of one's own."""

    def encode(self, data: dict[str, Any]) -> str:
        return "\n".join(person["first_name"] for person in data["person"])

    def decode(self, text: str) -> Any:
        if not text:
            raise KeyError("nothing")
        return {"person": [{"first_name": line, "age": "31"} for line in text.splitlines()]}

    def get_instruction_segment(self) -> str:
        return "One name a line."


@pytest.mark.parametrize("encoder", [Lines, Lines()])
def test_an_encoder_of_your_own(encoder: Any) -> None:
    assert (
        create_extraction_chain(answering("Ann"), PERSON, encoder_or_encoder_class=encoder).invoke("x")["data"] == ANN
    )
    chain = create_extraction_chain(answering(""), PERSON, encoder_or_encoder_class=encoder)
    assert [str(error) for error in chain.invoke("x")["errors"]] == ["KeyError: 'nothing'"]
    with pytest.raises(UnsupportedInput, match="Lines has no grammar"):
        create_extraction_chain(
            ChatLocal(engine=scripted_engine("")), PERSON, encoder_or_encoder_class=encoder, constrain=True
        )


def test_an_encoder_that_is_there_gets_the_node() -> None:
    chain = create_extraction_chain(
        answering('{"person": []}'), PERSON, encoder_or_encoder_class=JSONEncoder(use_tags=False)
    )
    assert chain.invoke("x")["data"] == {"person": []}
    assert "<json>" not in chain.prompt.format_prompt(text="x").to_string()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"encoder_or_encoder_class": "yaml"}, "csv, json, xml"),
        ({"encoder_or_encoder_class": 5}, "encode, decode"),
        ({"use_tag": True}, "does not take use_tag"),
        ({"encoder_or_encoder_class": Lines(), "use_tags": True}, "there already"),
        ({"type_descriptor": "python"}, "typescript"),
        ({"input_formatter": "quotes"}, "triple_quotes"),
        ({"instruction_template": "{schema}"}, "schema"),
        ({"validator": 5}, "clean_data"),
        ({"verbose": True}, "set_debug"),
        ({"constrain": True}, "ChatLocal"),
        ({"node": Text(id="a")}, "Object with attributes"),
        ({"node": "a"}, "A node is"),
        ({"llm": "gpt"}, "LangChain model"),
    ],
)
def test_wrong_arguments(settings: dict[str, Any], said: str) -> None:
    given = {"llm": answering(""), "node": PERSON, **settings}
    with pytest.raises(UnsupportedInput, match=said):
        create_extraction_chain(given.pop("llm"), given.pop("node"), **given)


def test_a_spec_as_response_format() -> None:
    engine = scripted_engine('"yes"')
    ChatLocal(engine=engine).invoke("Is the sea blue?", response_format=constraints.choice(["yes", "no"]))
    assert engine.backend.requests[0].constraint_spec == constraints.choice(["yes", "no"])  # type: ignore[attr-defined]


# Classes like Kor's: the same names and attributes, and nothing else in common with ours.
def like_kors(name: str, **attributes: Any) -> Any:
    return type(name, (), {"description": "", "many": False, "examples": [], **attributes})()


def test_nodes_of_kor() -> None:
    node = like_kors(
        "Object",
        id="player",
        description="music",
        attributes=[
            like_kors("Text", id="song", many=True, examples=[("play x", "x")]),
            like_kors(
                "Selection",
                id="action",
                options=[like_kors("Option", id="stop", examples=["be quiet"]), like_kors("Option", id="next")],
                null_examples=["what is the weather"],
            ),
            like_kors("Object", id="venue", attributes=[like_kors("Bool", id="open"), like_kors("Number", id="size")]),
        ],
    )
    expected = Object(
        id="player",
        description="music",
        attributes=(
            Text(id="song", many=True, examples=(("play x", "x"),)),
            Selection(
                id="action",
                options=(Option(id="stop", examples=("be quiet",)), Option(id="next")),
                null_examples=("what is the weather",),
            ),
            as_node(
                like_kors(
                    "Object", id="venue", attributes=[like_kors("Bool", id="open"), like_kors("Number", id="size")]
                )
            ),
        ),
    )
    assert as_node(node) == expected
    chain = create_extraction_chain(answering('{"player": {"action": "stop"}}'), node, encoder_or_encoder_class="json")
    assert chain.invoke("be quiet")["data"] == {"player": {"action": "stop"}}
    shown = chain.prompt.format_prompt(text="x").to_string()
    assert "Input: what is the weather\nOutput: <json>{}</json>\n" in shown
    # What the prompt's own example shows is an answer.
    nothing = create_extraction_chain(answering("<json>{}</json>"), node, encoder_or_encoder_class="json").invoke("x")
    assert (nothing["data"], nothing["errors"]) == ({"player": {}}, [])


def test_two_attributes_of_one_id() -> None:
    with pytest.raises(ValueError, match="several attributes with one id"):
        Object(id="a", attributes=(Text(id="b"), Number(id="b")))


DOCUMENTS = [Document("Ann is 31.", metadata={"uid": 7}), Document("Nobody.", metadata={"uid": "b"})]


def test_documents() -> None:
    chain = create_extraction_chain(answering(TABLE), PERSON)
    found = asyncio.run(extract_from_documents(chain, DOCUMENTS, max_concurrency=2))
    assert [(each["uid"], each["source_uid"]) for each in found] == [("0", "0"), ("1", "1")]
    assert set(found[0]) == {"uid", "source_uid", "data", "raw", "errors", "validated_data"}
    assert found[0]["data"] == ANN
    found = asyncio.run(
        extract_from_documents(chain, DOCUMENTS, use_uid=True, extraction_uid_function=lambda each: each.page_content)
    )
    assert [(each["uid"], each["source_uid"]) for each in found] == [("Ann is 31.", "7"), ("Nobody.", "b")]


def test_no_more_documents_at_once_than_asked_for() -> None:
    running: list[int] = []
    most: list[int] = []

    async def answer(_: Any) -> str:
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.pop()
        return TABLE

    chain = create_extraction_chain(RunnableLambda(answer), PERSON)
    asyncio.run(extract_from_documents(chain, DOCUMENTS * 4, max_concurrency=3))
    assert max(most) == 3


def test_a_document_that_fails() -> None:
    def answer(prompt: Any) -> str:
        if "Nobody" in prompt.text:
            raise OSError("no model there")
        return TABLE

    chain = create_extraction_chain(RunnableLambda(answer), PERSON)
    ann, failure = asyncio.run(extract_from_documents(chain, DOCUMENTS, return_exceptions=True))
    assert ann["data"] == ANN
    assert isinstance(failure, OSError)
    with pytest.raises(OSError, match="no model there"):
        asyncio.run(extract_from_documents(chain, DOCUMENTS))


@pytest.mark.parametrize(
    ("settings", "said"), [({"use_uid": True}, "Document 0 has no uid"), ({"max_concurrency": 0}, "from 1 on")]
)
def test_wrong_arguments_for_documents(settings: dict[str, Any], said: str) -> None:
    chain = create_extraction_chain(answering(TABLE), PERSON)
    with pytest.raises(UnsupportedInput, match=said):
        asyncio.run(extract_from_documents(chain, [Document("x")], **settings))
