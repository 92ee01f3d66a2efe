"""Where values stand in a JSON text, and the product of the choices that made them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlocal.engine import constraints
from chatlocal.engine.confidence import Choices
from chatlocal.engine.engine import Engine
from chatlocal.engine.json_spans import spans
from chatlocal.engine.messages import Sampling
from tests.engine.runtime.running import tiny_engine

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def at(value: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_each_span_is_the_text_of_its_value(value: Any, plain: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=plain, indent=indent)
    found = spans(text)
    for pointer, start, end, number in found:
        part = json.loads(text[start:end])
        assert part == at(value, pointer)
        assert number is (isinstance(part, (int, float)) and not isinstance(part, bool))
    assert found[-1][:3] == ("", 0, len(text))
    assert len({span.pointer for span in found}) == len(found)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', '{"a" 1}', "[1 2]", "tru", "[1] 2", "{a: 1}", "[" * 5000, "01"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        spans(text)


def recorded(*parts: tuple[str, float]) -> Choices:
    choices = Choices()
    for text, probability in parts:
        choices.add(text.encode(), math.log(probability))
    return choices


def test_a_value_is_as_sure_as_the_product_of_its_choices() -> None:
    choices = recorded(
        ('{"', 1.0), ("name", 1.0), ('":', 1.0), (' "', 0.9), ("H", 0.5), ("arry", 0.8), ('",', 0.6), (' "age": ', 1.0),
        ("4", 0.7), ("2", 0.4), ("}", 0.5),
    )  # fmt: skip
    found = choices.of_json('{"name": "Harry", "age": 42}')
    assert found == pytest.approx(
        {"/name": 0.9 * 0.5 * 0.8 * 0.6, "/age": 0.7 * 0.4 * 0.5, "": 0.9 * 0.5 * 0.8 * 0.6 * 0.7 * 0.4 * 0.5}
    )


def test_ids_in_several_bytes_and_text_before_the_answer() -> None:
    choices = Choices()
    for data, probability in [
        (b"<think>42</think>\n", 0.1),
        (b'["', 0.5),
        ("犬".encode()[:1], 0.5),
        ("犬".encode()[1:], 0.25),
    ]:
        choices.add(data, math.log(probability))
    choices.add(b'"', 0.0)
    choices.add(b", 42]", math.log(0.5))
    found = choices.of_json('["犬", 42]')
    assert found == pytest.approx({"/0": 0.0625, "/1": 0.5, "": 0.03125})


def test_ids_that_were_written_anew_are_forgotten() -> None:
    choices = recorded(('"a', 0.5), ('"', 0.5))
    choices.rewind(1)
    choices.add(b'"', math.log(0.25))
    assert choices.of_json('"a"') == pytest.approx({"": 0.125})


def test_other_text_has_no_confidence() -> None:
    assert recorded(("prose", 0.5)).of_json("prose") is None
    assert recorded(("[1", 0.5)).of_json("[1") is None
    assert recorded(("[1]", 0.5)).of_json("[2]") is None


HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"fixed": {"const": "yes"}, "one": {"enum": ["a", "b", "c"]}, "n": {"type": "integer", "maximum": 9}},
    "required": ["fixed", "one", "n"],
}


@pytest.fixture(scope="module")
def engine() -> Any:
    with tiny_engine() as engine:
        yield engine


def test_an_answer_tells_how_sure_the_model_was(engine: Engine) -> None:
    finish = engine.generate(HELLO, spec=constraints.json_schema(SCHEMA)).finish
    assert finish.confidence is not None
    assert list(finish.confidence) == ["/fixed", "/one", "/n", ""]
    assert finish.confidence["/fixed"] == 1
    assert 1 / 3 <= finish.confidence["/one"] < 1  # greedy: the likeliest of three
    assert finish.confidence[""] == pytest.approx(finish.confidence["/one"] * finish.confidence["/n"])


def test_the_values_of_a_field_have_probabilities_that_add_up(engine: Engine) -> None:
    """Many answers at temperature 1: how often a value comes is how sure the model says it was."""
    spec = constraints.json_schema(
        {"type": "object", "properties": {"one": {"enum": ["a", "b", "c"]}}, "required": ["one"]}
    )
    sure: dict[str, float] = {}
    for seed in range(60):
        reply = engine.generate(HELLO, spec=spec, sampling=Sampling(temperature=1.0, seed=seed))
        assert reply.finish.confidence is not None
        sure[json.loads(reply.message.text)["one"]] = reply.finish.confidence["/one"]
    assert len(sure) == 3
    assert sum(sure.values()) == pytest.approx(1, abs=1e-3)


def test_free_text_has_none(engine: Engine) -> None:
    assert engine.generate(HELLO, sampling=Sampling(max_tokens=5)).finish.confidence is None


def test_a_number_alone_counts_the_choice_to_end(engine: Engine) -> None:
    spec = constraints.json_schema({"enum": [1, 10, 100]})
    sure: dict[str, float] = {}
    for seed in range(80):
        reply = engine.generate(HELLO, spec=spec, sampling=Sampling(temperature=2.0, seed=seed))
        assert reply.finish.confidence is not None
        sure[reply.message.text] = reply.finish.confidence[""]
    assert len(sure) == 3
    assert sum(sure.values()) == pytest.approx(1, abs=1e-3)
