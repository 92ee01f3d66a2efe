"""What a request means where the caller said nothing: the model's generation_config, else greedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chatlocal.engine.messages import Sampling

# New ids when neither the call nor the model's generation_config sets a limit. A small model that repeats itself would
# otherwise fill its whole context; the finish reason "length" says when this was the end.
DEFAULT_MAX_TOKENS = 1024


def complete(sampling: Sampling, generation_config: Any, room: int) -> Sampling:
    """Fill every None of `sampling`; `room` is how many new ids the context still holds.

    temperature None takes the configured temperature where the configuration samples (do_sample), else 0. The
    configured top_p, top_k and min_p apply unless the call is greedy or sets its own. The configuration is only read.
    """
    configured = _Configured(generation_config)
    temperature = sampling.temperature
    if temperature is None:
        samples = bool(configured.get("do_sample", False))
        temperature = configured.get("temperature", 1.0) if samples else 0.0
    limit = sampling.max_tokens or configured.get("max_new_tokens", DEFAULT_MAX_TOKENS)
    filled = replace(
        sampling,
        temperature=temperature,
        repetition_penalty=_first(sampling.repetition_penalty, configured.get("repetition_penalty", 1.0)),
        presence_penalty=_first(sampling.presence_penalty, 0.0),
        frequency_penalty=_first(sampling.frequency_penalty, 0.0),
        max_tokens=min(limit, room),
    )
    if temperature == 0:
        return replace(filled, top_p=1.0, top_k=0, min_p=0.0)
    return replace(
        filled,
        top_p=_first(sampling.top_p, configured.get("top_p", 1.0)),
        top_k=_first(sampling.top_k, configured.get("top_k", 0)),
        min_p=_first(sampling.min_p, configured.get("min_p", 0.0)),
    )


def end_ids(tokenizer: Any, generation_config: Any, family: Iterable[int]) -> frozenset[int]:
    """Every id that ends an answer: the tokenizer's, the generation_config's (one or a list) and the family's."""
    ids: set[int] = set(family)
    for value in (getattr(tokenizer, "eos_token_id", None), _Configured(generation_config).get("eos_token_id", None)):
        ids.update([value] if isinstance(value, int) else value or ())
    return frozenset(ids)


class _Configured:
    """Reads a generation_config, whose unset values are None or missing."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get(self, name: str, default: Any) -> Any:
        value = getattr(self._config, name, None)
        return default if value is None else value


def _first(value: Any, default: Any) -> Any:
    return default if value is None else value
