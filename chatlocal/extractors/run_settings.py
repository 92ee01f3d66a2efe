"""What a run's results depend on, as JSON: a run with other settings may not go on with its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from chatlocal.engine import Engine
from chatlocal.engine.shared import shared_engine

if TYPE_CHECKING:
    from chatlocal.extractors.extractor import Extractor

# Beyond this many characters a value says nothing to a person.
_SHOWN = 60


def settings_of(extractor: Extractor, **run: Any) -> dict[str, Any]:
    """The extractor's settings and those of the run, as a JSON object."""
    names = (
        "instructions",
        "examples",
        "grounded",
        "min_confidence",
        "max_retries",
        "constrain",
        "method",
        "max_tokens",
        "key",
    )
    settings = {name: getattr(extractor, name) for name in names}
    found = {"schema": extractor.schema.answer, **_model(extractor.llm), **settings, **run}
    return dict(to_jsonable_python(found, by_alias=True, fallback=repr))


def _model(llm: Any) -> dict[str, Any]:
    """Name of the model, and of one of ours the type of its weights."""
    engine = shared_engine() if llm is None else llm if isinstance(llm, Engine) else getattr(llm, "engine", None)
    if isinstance(engine, Engine):
        return {"model": engine.name, "dtype": engine.describe().get("dtype")}
    names = (getattr(llm, name, None) for name in ("model_name", "model"))
    return {"model": next((name for name in names if isinstance(name, str)), type(llm).__name__)}


def difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Which settings differ and how, in words; empty where none does."""
    names = [*before, *(name for name in now if name not in before)]
    return "; ".join(
        _told(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)
    )


def _told(name: str, before: Any, now: Any) -> str:
    was, now_is = repr(before), repr(now)
    if max(len(was), len(now_is)) > _SHOWN:
        return f"another {name}"
    return f"{name} was {was} and is {now_is}"
