"""Whatever the schema and whatever the model: a chosen answer is whole and fits. The model here is a random one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from chatlocal.engine import Engine
from chatlocal.extractors import Extractor
from tests.tiny import tiny_model, tiny_tokenizer


class Node(BaseModel):
    label: str
    children: list[Node] = []
    parent: Node | None = None


class Everything(BaseModel):
    text: str = Field(max_length=12)
    code: str = Field(pattern=r"^[A-Z]{2}\d{3}$")
    day: date
    at: time | None = None
    amount: float = Field(gt=0)
    grade: int = Field(ge=1, le=6)
    kind: Literal["a b", "c_d"]
    flag: bool | None = None
    either: int | str
    tags: list[str] = Field(min_length=2, max_length=3)
    pair: tuple[int, str]
    by_name: dict[str, int]
    grid: list[list[int]]
    numbers: list[int]
    fixed: Literal[7] = 7


SCHEMAS = [
    Everything,
    list[Everything],
    Node,
    [Node, Everything],
    {"type": "array", "minItems": 2, "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    {"type": "object", "properties": {"a": {"enum": [1, "x", None]}, "b": {"type": ["string", "null"]}}},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"const": 3}}, "required": ["a", "b"]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}]},
    {"type": "string"},
    {"type": "array", "items": {"type": "string", "pattern": "^x+$"}, "minItems": 1},
]
TEXTS = ["Two {dogs} for 1,200.50 on 2024-03-01, code AB123. 《晚风》28元", ""]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 4096
    with Engine(tiny_model(max_position_embeddings=4096), tokenizer) as made:
        yield made


@pytest.mark.parametrize("text", TEXTS, ids=["text", "nothing"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(getattr(schema, "__name__", schema))[:40])
def test_a_chosen_answer_fits(engine: Engine, schema: object, text: str) -> None:
    found = Extractor(schema, engine, method="choose", max_retries=0, max_tokens=1000).extract(text)
    assert found.failures == ()
    assert found.data is not None
