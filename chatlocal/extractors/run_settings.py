"""What a run's results depend on, as JSON: a run with other settings may not go on with its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from chatlocal.extractors.extractor import Extractor

# Beyond this many characters a value says nothing to a person.
_SHOWN = 60


def settings_of(extractor: Extractor, **run: Any) -> dict[str, Any]:
    """The extractor's settings and those of the run, as a JSON object."""
    names = (
        "model",
        "instructions",
        "examples",
        "grounded",
        "min_confidence",
        "max_retries",
        "constrain",
        "max_tokens",
    )
    settings = {name: getattr(extractor, name, None) for name in names}
    found = {"schema": extractor.schema.answer, **settings, "key": extractor.key, **run}
    return dict(to_jsonable_python(found, by_alias=True, fallback=repr))


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
