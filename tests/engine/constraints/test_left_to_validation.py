"""What no grammar enforces is known of a spec as it is of its constraint."""

from __future__ import annotations

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Opening, Spec
from chatlocal.engine.constraints.left_to_validation import left_to_validation
from chatlocal.engine.errors import UnsupportedSchema
from tests.tiny import tiny_tokenizer

TAGS = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
FORM = constraints.json_schema(TAGS)
UNIQUE = "uniqueItems at /properties/tags"
CALL = constraints.marked('start: schema_0 | "no"', {}, {"schema_0": TAGS}, left=["maxItems at /x"])


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        (FORM, (UNIQUE,)),
        (constraints.json_schema({"type": "integer"}), ()),
        (CALL, ("maxItems at /x", UNIQUE)),
        (constraints.either(FORM, CALL), (UNIQUE, "maxItems at /x")),
        (constraints.free_text(Opening("<a>", FORM), Opening("<b>", FORM)), (UNIQUE,)),
        (constraints.thinking(FORM, "<think>", "</think>", open=True), (UNIQUE,)),
        (constraints.regex("a+"), ()),
        (constraints.choice(["a"]), ()),
        (constraints.grammar('start: "a"'), ()),
    ],
    ids=lambda value: value.kind if isinstance(value, Spec) else "",
)
def test_is_that_of_the_constraint(spec: Spec, left: tuple[str, ...]) -> None:
    assert left_to_validation(spec) == left
    assert set(constraints.compile(spec, tiny_tokenizer()).left_to_validation) == set(left)


def test_a_schema_that_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="contains"):
        left_to_validation(constraints.json_schema({"type": "array", "contains": {"type": "integer"}}))
