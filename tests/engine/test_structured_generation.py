"""Structured answers of real engines: whatever is sampled and however few tokens there are, they are whole and valid.

A tiny random model is the hardest: it says anything that the grammar lets it say.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.engine import Engine
from chatlocal.engine.errors import BudgetTooSmall, OutputInvalid
from chatlocal.engine.messages import Sampling
from tests.engine.constraints.pydantic_models import TYPES
from tests.tiny import tiny_model, tiny_tokenizer

PROMPT = [{"role": "user", "content": "Describe Harry, the brown dog who likes chicken."}]
# What the types leave to validation, which the grammar cannot say.
LEFT = {"Collections": ("uniqueItems at /properties/tags", "uniqueItems at /properties/levels")}
# Tokens beyond the fewest that an answer needs.
MORE = (0, 1, 3, 10, 40, 150)


@pytest.fixture(scope="module")
def tiny() -> Iterator[Engine]:
    with Engine(tiny_model(max_position_embeddings=4096), tiny_tokenizer(), max_batch=32) as engine:
        yield engine


def fewest(engine: Engine, kind: Any) -> int:
    """How many tokens the shortest answer has."""
    width = engine.model.get_output_embeddings().weight.shape[0]
    constraint = constraints.compile(
        constraints.json_schema(kind), engine.tokenizer, vocab_size=width, end_ids=engine.describe()["end_ids"]
    )
    assert constraint.shortest is not None
    return len(constraint.shortest)


def failures(engine: Engine, cases: list[tuple[str, int, int]]) -> list[str]:
    """What is wrong with the answers to these cases: the name of a type, tokens beyond the fewest, and a seed."""
    needed = {name: fewest(engine, TYPES[name]) for name in dict.fromkeys(name for name, _, _ in cases)}

    def failure(case: tuple[str, int, int]) -> str | None:
        name, more, seed = case
        sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, seed=seed, max_tokens=max(needed[name] + more, 1))
        reply = engine.generate(PROMPT, spec=constraints.json_schema(TYPES[name]), sampling=sampling)
        text = str(reply.message.content)
        # A number may go on for ever, so at its limit it is whole all the same.
        if reply.finish.reason != "stop" and not text[-1:].isdigit():
            return f"{case} ends by {reply.finish.reason}: {text[-100:]!r}"
        try:
            constraints.validation.check(TYPES[name], text)
        except OutputInvalid as error:
            return f"{case}: {error}: {text[:300]!r}"
        return None

    with ThreadPoolExecutor(32) as pool:
        return [found for found in pool.map(failure, cases) if found is not None]


def test_there_is_nothing_to_excuse() -> None:
    tokenizer = tiny_tokenizer()
    left = {
        name: constraints.compile(constraints.json_schema(kind), tokenizer).left_to_validation
        for name, kind in TYPES.items()
    }
    assert {name: found for name, found in left.items() if found} == LEFT


def test_random_answers_are_whole_and_valid(tiny: Engine) -> None:
    cases = [(name, more, seed) for name in TYPES for seed, more in enumerate((0, 1, 10))]
    assert failures(tiny, cases) == []


def test_answers_of_the_embedded_model_are_whole_and_valid(embedded_engine: Engine) -> None:
    names = ("Component", "Expression", "Awkward", "Pair")
    assert failures(embedded_engine, [(name, more, more) for name in names for more in (0, 3)]) == []


@pytest.mark.parametrize("name", TYPES)
def test_with_fewer_tokens_than_the_shortest_answer_it_is_refused(name: str, tiny: Engine) -> None:
    needed = fewest(tiny, TYPES[name])
    if needed > 1:
        spec = constraints.json_schema(TYPES[name])
        with pytest.raises(BudgetTooSmall, match=f"{needed} tokens.* room for {needed - 1}"):
            tiny.generate(PROMPT, spec=spec, sampling=Sampling(max_tokens=needed - 1))


@pytest.mark.evaluate
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", TYPES)
def test_all_random_answers_are_whole_and_valid(name: str, tiny: Engine) -> None:
    assert failures(tiny, [(name, more, seed) for more in (*MORE, 600) for seed in range(20)]) == []


@pytest.mark.evaluate
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", TYPES)
def test_all_answers_of_the_embedded_model_are_whole_and_valid(name: str, embedded_engine: Engine) -> None:
    assert failures(embedded_engine, [(name, more, seed) for more in MORE for seed in range(20)]) == []
