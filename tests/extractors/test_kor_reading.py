"""Answers as models write them: chatter, fences, slips of form. What is clear is read, the rest is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.extractors import Bool, Number, Object, Option, Selection, Text
from chatlocal.extractors.encoders import CSVEncoder, JSONEncoder, XMLEncoder, encoder_for
from chatlocal.extractors.kor_answer import KorExtraction, read_answer
from chatlocal.extractors.nodes import Dictionary

PERSON = Object(id="person", many=True, attributes=(Text(id="first_name"), Number(id="age")))
CITY = Object(id="travel_destination", many=True, attributes=(Text(id="city_name"),))
DOG = Object(
    id="dog",
    attributes=(
        Text(id="name"),
        Number(id="age"),
        Bool(id="good"),
        Selection(id="color", options=(Option(id="red"), Option(id="blue"))),
    ),
)
CONTACT = Object(
    id="contact",
    many=True,
    attributes=(
        Text(id="name", many=True),
        Object(id="address", many=True, attributes=(Text(id="street"), Number(id="zip"))),
    ),
)


def read(node: Object, encoder: str, raw: str, **settings: Any) -> KorExtraction:
    return read_answer(raw, node, encoder_for(encoder, node, **settings))


def data_of(node: Object, encoder: str, raw: str, **settings: Any) -> Any:
    found = read(node, encoder, raw, **settings)
    assert found["errors"] == []
    assert found["raw"] == raw
    return found["data"][node.id]


ANN = [{"first_name": "Ann", "age": 31}]


@pytest.mark.parametrize(
    "raw",
    [
        "first_name|age\nAnn|31\n",
        "first_name|age\r\nAnn|31\r\n",
        "first_name | age\n Ann | 31",
        "Sure, here is the table:\n\nfirst_name|age\nAnn|31\n\nLet me know if you need more!",
        "first_name|age\nAnn|31\nHope this helps you!",
        "first_name|age\nAnn|31\n\nHope this helps | bye",
        "```csv\nfirst_name|age\nAnn|31\n```\nThat is all | done",
        "```\nfirst_name|age\nAnn|31",
        "<csv>first_name|age\nAnn|31\n</csv> Hope this helps | bye",
        "<CSV>\nfirst_name|age\nAnn|31",
        "first_name|age\nAnn|31\n</csv>",
        "| first_name | age |\n|------------|-----|\n| Ann | 31 |",
        "first_name,age\nAnn,31\n",
        "Output: First_Name|Age\nAnn|31\n",
        '"first_name"|"age"\n"Ann"|"31"\n',
        "first_name|age\n\nAnn|31\n",
        "first_name|age\nAnn|３１\n",
        "first_name;age\nAnn;31\n",
        "first_name|age\nAnn|31\n---\nDone",
    ],
)
@pytest.mark.parametrize("use_tags", [False, True])
def test_a_table(raw: str, use_tags: bool) -> None:
    assert data_of(PERSON, "csv", raw, use_tags=use_tags) == ANN


@pytest.mark.parametrize(
    ("raw", "rows"),
    [
        ("city_name\nToronto\nDenver\n\nHere are some cities | easy to reach | cheap\n", ["Toronto", "Denver"]),
        ("city_name\nToronto\n\nDenver\n", ["Toronto", "Denver"]),
        ("city_name\n", []),
        ("city_name", []),
        ('city_name\n"Paris | Texas"\n"Say ""hi"""\n"two\nlines"\n', ["Paris | Texas", 'Say "hi"', "two\nlines"]),
        ('city_name\n"never closed\nParis\n', ['"never closed', "Paris"]),
        ('city_name\nthe 5" pipe\n', ['the 5" pipe']),
        ("city_name\n哈尔滨\n{curly}\n", ["哈尔滨", "{curly}"]),
        ("city_name\n01234\nNone\n", ["01234", "None"]),
    ],
)
def test_rows_of_one_column(raw: str, rows: list[str]) -> None:
    assert data_of(CITY, "csv", raw) == [{"city_name": city} for city in rows]


def test_a_table_of_some_of_the_columns() -> None:
    assert data_of(PERSON, "csv", "age\n31\n") == [{"age": 31}]
    assert data_of(PERSON, "csv", "age|first_name\n31|Ann\n") == ANN


def test_cells_have_the_types_of_their_columns() -> None:
    raw = "name|age|good|color\n007|1,234.5|True|red\n|||\nA||no|null\n"
    many = DOG.model_copy(update={"many": True})
    assert data_of(many, "csv", raw) == [
        {"name": "007", "age": 1234.5, "good": True, "color": "red"},
        {"name": "", "age": None, "good": None, "color": None},
        {"name": "A", "age": None, "good": False, "color": None},
    ]


@pytest.mark.parametrize(
    ("node", "raw", "data", "said"),
    [
        (PERSON, "first_name|age\nAnn|31|x\nBo|2\n", [{"first_name": "Bo", "age": 2}], "'Ann.31.x' was not read"),
        (PERSON, "first_name|age\nAnn|old\n", [{"first_name": "Ann", "age": "old"}], 'age should be a number.*"old"'),
        (PERSON, "Ann|31\n", ANN, "no header"),
        (CITY, "city_name\nRome\n\nAnd then we went to sea", [{"city_name": "Rome"}], "may be a remark"),
        (DOG, "name|color\nA|red\nB|red\n", [{"name": "A", "color": "red"}, {"name": "B", "color": "red"}], "2 rows"),
        (DOG, "name|color\nA|green\n", [{"name": "A", "color": "green"}], "should be one of red, blue"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(node: Object, raw: str, data: Any, said: str) -> None:
    found = read(node, "csv", raw)
    assert found["data"] == {node.id: data}
    [error] = found["errors"]
    with pytest.raises(type(error), match=said):
        raise error


HARRY = {"name": "Harry", "age": 3}


@pytest.mark.parametrize(
    "raw",
    [
        '<json>{"dog": {"name": "Harry", "age": 3}}</json>',
        '{"dog": {"name": "Harry", "age": "3"}}',
        'Sure {here}: {"dog": {"name": "Harry", "age": 3}} I hope {this} helps',
        '```json\n{"dog": {"name": "Harry", "age": 3}}\n```',
        '<json>\n```json\n{"dog": {"name": "Harry", "age": 3}}\n```\n</json>',
        '<json>{"dog": {"name": "Harry", "age": 3,},}</json>',
        '<json>{"dog": {"name": "Harry", "age": 3}</json>',
        '<json>{"dog": {"name": "Harry", "age": 3}',
        "{'dog': {'name': 'Harry', 'age': 3}}",
        "{dog: {name: 'Harry', age: 3}}",
        "{“dog”：{“name”：“Harry”，“age”：3}}",
        '{"dog": {"name": "Harry", /* in years */ "age": 3}} // done',
        '{\n  "dog": {\n    "name": "Harry"\n    "age": 3\n  }\n}',
        '<think>{"dog": {"name": "Rex"}}</think>\n{"dog": {"name": "Harry", "age": 3}}',
        '{"note": 1} {"dog": {"name": "Harry", "age": 3}}',
        '{"dog": {"name": "Rex"}} <json>{"dog": {"name": "Harry", "age": 3}}</json>',
    ],
)
@pytest.mark.parametrize("use_tags", [False, True])
def test_an_object(raw: str, use_tags: bool) -> None:
    prompt_free = read(DOG, "json", raw.partition("</think>\n")[2] or raw, use_tags=use_tags)
    assert prompt_free["errors"] == []
    assert prompt_free["data"]["dog"] == HARRY


@pytest.mark.parametrize(
    ("raw", "dog"),
    [
        ('{"dog": {"name": "a {b} [c] </json> \\"d\\""}}', {"name": 'a {b} [c] </json> "d"'}),
        ("{'dog': {'name': 'It's me'}}", {"name": "It's me"}),
        ('{"dog": {"name": "a "good" dog",}}', {"name": 'a "good" dog'}),
        ('{"dog": {"name": "\\u54c8\\u5229 \\ud83d\\ude00",}}', {"name": "哈利 😀"}),
        ('{"dog": {"name": "two\nlines"}}', {"name": "two\nlines"}),
        ("{'dog': {'name': None, 'good': True, 'age': null}}", {"name": None, "good": True, "age": None}),
        ('{"dog": {"name": 7, "good": "yes", "age": ""}}', {"name": "7", "good": True, "age": None}),
        ('{"dog": {"age": +1_000}}', {"age": 1000}),
        ('{"dog": {"age": .5, "good": False}}', {"age": 0.5, "good": False}),
        ('"{\\"dog\\": {\\"age\\": 3}}"', {"age": 3}),
        ('{"dog": {"name": 01234}}', {"name": "01234"}),
        ('{"dog": {"age": 01234, "vet": {"x": [1]}}}', {"age": 1234, "vet": {"x": [1]}}),
    ],
)
def test_values_in_an_object(raw: str, dog: Any) -> None:
    assert data_of(DOG, "json", raw) == dog


@pytest.mark.parametrize(
    ("raw", "dog", "said"),
    [
        ('{"dog": {"name": "Harry", "age": 3', {"name": "Harry"}, "ends in the middle"),
        ('{"dog": {"age": 3, "name": "Har', {"age": 3}, "ends in the middle"),
        ('{"dog": {"age": true}}', {"age": True}, "age should be a number"),
        ('{"dog": {"color": "Red"}}', {"color": "Red"}, "should be one of red, blue"),
        ('{"dog": {"name": ["a"]}}', {"name": ["a"]}, "should be one text"),
        ('{"dog": [{"name": "a"}]}', [{"name": "a"}], "should be an object"),
        ('{"dog": "Harry"}', "Harry", "should be an object"),
        ('{"dog": {"age": 1e999}}', {"age": float("inf")}, "age should be a number"),
        ('{"dog": null}', None, "nothing for 'dog'"),
        ('{"dog": {}}', {}, "nothing for 'dog'"),
    ],
)
def test_what_is_wrong_with_an_object_is_said(raw: str, dog: Any, said: str) -> None:
    found = read(DOG, "json", raw)
    assert found["data"] == {"dog": dog}
    [error] = found["errors"]
    with pytest.raises(type(error), match=said):
        raise error


def test_lists_are_lists() -> None:
    found = read(CONTACT, "json", '{"contact": [{"name": "Jo"}, {"name": [], "address": [{"zip": "5"}]}]}')
    assert found["data"] == {"contact": [{"name": "Jo"}, {"name": [], "address": [{"zip": 5}]}]}
    assert [str(error) for error in found["errors"]] == ['contact[0].name should be a list, and is "Jo".']


@pytest.mark.parametrize(
    ("raw", "contacts"),
    [
        ("<contact><name>Jo</name><name>Al</name></contact>", [{"name": ["Jo", "Al"]}]),
        (
            "text <contact> \n<name>A &amp; B &lt;3 &#x4f60; & co</name>\n</contact> after",
            [{"name": ["A & B <3 你 & co"]}],
        ),
        (
            "```xml\n<contact>\n <name>Jo\n <address><street>1</street></contact>\n```",
            [{"name": ["Jo"], "address": [{"street": "1"}]}],
        ),
        ("I use <contact> tags: <contact><name>Jo</name></contact>", [{"name": ["Jo"]}]),
        ('<Contact id="1"><NAME lang="en">Jo <b>bold</b></NAME></Contact>', [{"name": ["Jo <b>bold</b>"]}]),
        ("<contact><name>in <street> of X</name></contact>", [{"name": ["in <street> of X"]}]),
        (
            "<contact><name>Jo</name></contact>, <contact><name>Al</name></contact>",
            [{"name": ["Jo"]}, {"name": ["Al"]}],
        ),
        (
            "<contact><name>A<address><zip>5</contact><contact><name>B</contact>",
            [{"name": ["A"], "address": [{"zip": 5}]}, {"name": ["B"]}],
        ),
        (
            "<contact><address><street>S</street></address><address><zip></zip></address></contact>",
            [{"address": [{"street": "S"}, {"zip": None}]}],
        ),
        ("<contact><name><![CDATA[a<b>&amp;]]></name></contact>", [{"name": ["a<b>&amp;"]}]),
        ("<contact><name/><phone>1</phone></contact>", [{"name": [], "phone": "1"}]),
        (
            '<contact name="A &amp; B"><address street="S" zip="5"/></contact>',
            [{"name": ["A & B"], "address": [{"street": "S", "zip": 5}]}],
        ),
        ("<!-- <contact><name>no</name></contact> --><contact><name>Jo</name></contact>", [{"name": ["Jo"]}]),
        ("<contact><name>Jo</nmae></contact>", [{"name": ["Jo"]}]),
        ("&lt;contact&gt;&lt;name&gt;Jo&lt;/name&gt;&lt;/contact&gt;", [{"name": ["Jo"]}]),
        ("<contact></contact>", []),
        ("<contact/>", []),
    ],
)
def test_elements(raw: str, contacts: Any) -> None:
    assert data_of(CONTACT, "xml", raw) == contacts


@pytest.mark.parametrize("encoder", ["json", "csv", "xml"])
@pytest.mark.parametrize(
    "raw",
    [
        "",
        "  \n",
        "plain text",
        "I found no dog.",
        "{see below}",
        "[]",
        "{}",
        "null",
        "<json></json>",
        "<csv></csv>",
        "<dog>",
        "a|b|c",
        "[" * 20_000,
        "<" * 5_000,
        '{"a":' * 5_000,
        "```",
        '"' * 999,
        "-" * 5_000,
    ],
    ids=lambda raw: raw[:12],
)
def test_garbage_is_never_without_an_error(encoder: str, raw: str) -> None:
    node = DOG if encoder != "csv" else PERSON
    found = read(node, encoder, raw)
    assert found["data"] == {}
    assert found["errors"] != []
    assert found["raw"] == raw


@given(st.text(max_size=200))
@pytest.mark.parametrize("encoder", ["json", "csv", "xml"])
def test_no_text_raises(encoder: str, raw: str) -> None:
    found = read(PERSON, encoder, raw)
    assert found["data"] or found["errors"]


_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20).map(str.strip)


@given(
    st.lists(
        st.fixed_dictionaries({"first_name": _TEXTS, "age": st.integers(-999, 999) | st.floats(-9, 9)}), max_size=4
    )
)
@pytest.mark.parametrize(
    "encoder",
    [
        JSONEncoder(PERSON),
        JSONEncoder(PERSON, use_tags=False, ensure_ascii=True),
        CSVEncoder(PERSON),
        CSVEncoder(PERSON, use_tags=True),
        XMLEncoder(PERSON),
    ],
)
def test_what_is_written_is_read(encoder: Any, people: list[dict[str, Any]]) -> None:
    data = {"person": people}
    found = read_answer(encoder.encode(data), PERSON, encoder)
    if isinstance(encoder, XMLEncoder) and not people:
        return  # XML has no way to write an empty list
    assert found["errors"] == []
    assert sorted_keys(found["data"]) == sorted_keys(data)


def sorted_keys(data: dict[str, Any]) -> Any:
    return [sorted(person.items()) for person in data["person"]]


def test_a_dictionary_in_each_encoding() -> None:
    node = Object(id="exam", attributes=(Dictionary(id="marks", value=Number(id="value")),))
    data = {"exam": {"marks": {"art": 3, "math": 5.5}}}
    for encoder in (JSONEncoder(node), XMLEncoder(node)):
        assert read_answer(encoder.encode(data), node, encoder)["data"] == data
