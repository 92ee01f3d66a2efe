"""The way to ask a model for the answer of an extraction: choose values, write JSON under a grammar, or by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel

from chatlocal.engine import Engine, Sampling
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.shared import shared_engine
from chatlocal.extractors.answering import Answering
from chatlocal.extractors.chosen_answers import ChosenAnswers
from chatlocal.extractors.extraction_prompt import WorkedExample
from chatlocal.extractors.grounded_fields import demand_spans
from chatlocal.extractors.prompted_answers import PromptedAnswers
from chatlocal.extractors.record_schema import RecordSchema
from chatlocal.extractors.written_answers import WrittenAnswers

Method = Literal["choose", "write"]

# What the front ends call the settings of sampling; an extraction is greedy where they say nothing.
_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens")


def answering_of(
    llm: Any,
    schema: RecordSchema,
    *,
    instructions: str | None,
    examples: Sequence[WorkedExample],
    grounded: bool | Sequence[str],
    constrain: bool,
    method: Method | None,
    max_tokens: int | None,
) -> Answering:
    """The way to ask this model. UnsupportedInput for what is no model, and for settings that do not go together."""
    if method not in (None, "choose", "write"):
        raise UnsupportedInput(f"method is 'choose', 'write' or None, got {method!r}.")
    engine = engine_of(llm)
    demanded = demand_spans(schema.answer, grounded)
    if not constrain and (method == "choose" or grounded):
        raise UnsupportedInput(
            "constrain=False leaves the model free: it goes with neither method='choose' nor grounded."
        )
    if engine is None:
        if not isinstance(llm, BaseChatModel):
            raise UnsupportedInput(f"llm is a ChatLocal, LocalLLM, Engine or LangChain chat model, got {llm!r:.80}.")
        if method is not None or grounded:
            raise UnsupportedInput(
                f"{type(llm).__name__} is asked by prompt alone: method and grounded need a model of chatlocal."
            )
        return PromptedAnswers(llm, schema, instructions=instructions, examples=examples)
    settings: dict[str, Any] = {name: getattr(llm, name, None) for name in _SETTINGS}
    settings = {name: value for name, value in settings.items() if value is not None}
    if max_tokens is not None:
        settings["max_tokens"] = max_tokens
    shared: dict[str, Any] = {"instructions": instructions, "examples": examples}
    settings.setdefault("temperature", 0.0)
    sampling = Sampling(**settings)
    written = WrittenAnswers(engine, schema, demanded, constrain=constrain, sampling=sampling, **shared)
    if method == "write" or not constrain or (method is None and engine.trained_for_tools):
        return written
    return ChosenAnswers(engine, schema, demanded, written, **shared)


def engine_of(llm: Any) -> Engine | None:
    """The engine behind a model of ours, the embedded model's for None; None for other models."""
    if llm is None:
        return shared_engine()
    engine = llm if isinstance(llm, Engine) else getattr(llm, "engine", None)
    return engine if isinstance(engine, Engine) else None
