"""The quick look at schemas: it says yes only where jsonschema's own check does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from chatlocal.engine.constraints.schema_shape import keeps_2020_12
from chatlocal.engine.constraints.schema_source import schema_of
from tests.engine.constraints.pydantic_models import TYPES

KEYWORDS = [
    *sorted(Draft202012Validator.VALIDATORS),
    *("$defs", "definitions", "title", "description", "default", "examples", "deprecated", "readOnly", "$id"),
    *("$anchor", "$comment", "contentMediaType", "contentEncoding", "contentSchema", "then", "else", "unknown"),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([0.5, 2.0, "a", "string", "integer", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=3),
    max_leaves=8,
)


def really(schema: Any) -> bool:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return False
    return True


@given(st.dictionaries(st.sampled_from(KEYWORDS), ANYTHING, max_size=3))
def test_it_never_says_yes_where_the_check_says_no(schema: Any) -> None:
    assert really(schema) or not keeps_2020_12(schema)


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 1.5, "string", [], ["a"], ["a", "a"], [1], {}, {"a": 1}, {"a": {}}, {"a": ["b"]}, [{}]]
)
def test_single_keywords(keyword: str, value: Any) -> None:
    assert really({keyword: value}) or not keeps_2020_12({keyword: value})


@pytest.mark.parametrize("name", TYPES)
def test_schemas_of_types_are_seen_to_be_right(name: str) -> None:
    assert keeps_2020_12(schema_of(TYPES[name]))
