"""What a person wants to know of how a model is prompted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chatlocal.engine.errors import ChatLocalError
from chatlocal.engine.generation_defaults import end_ids
from chatlocal.engine.messages import ChatMessage

if TYPE_CHECKING:
    from chatlocal.engine.families import Choice, Family, Prompt

_OWN_TURN = "has a place of its own"
_MERGED = "has no place: ChatLocal and LocalLLM put it in front of the first user text, render refuses it"


def described_prompts(choice: Choice, tokenizer: Any, generation_config: Any) -> dict[str, Any]:
    """The family, the rule that chose it, where its format comes from, its stops, and the tokenizer's special tokens.

    `stops` are the texts and tokens that end an answer, `end_ids` the ids among them, those of the model's
    generation_config included.
    """
    family = choice.family
    sample = _sample(family)
    ends = end_ids(tokenizer, generation_config, sample.stop_ids(tokenizer) if sample else ())
    stops = [repr(stop) for stop in (*sample.stop_strings, *sample.next_turn)] if sample else ["unknown"]
    return {
        "family": family.name,
        "rule": choice.rule,
        "why": choice.why,
        "template_source": family.source,
        "system_text": _OWN_TURN if family.takes_system else _MERGED,
        "stops": list(dict.fromkeys(stops)),
        "end_ids": sorted(ends),
        "special_tokens": _special_tokens(tokenizer),
    }


def _sample(family: Family) -> Prompt | None:
    """A prompt of the family, for its stops; None when its template cannot even write one question."""
    try:
        return family.render((ChatMessage("user", "Hi"),))
    except ChatLocalError:
        return None


def _special_tokens(tokenizer: Any) -> list[str]:
    """Such as "bos <s>"; a token with more than one job is named for each."""
    named = getattr(tokenizer, "special_tokens_map", None) or {}
    return [f"{job.removesuffix('_token')} {token}" for job, token in named.items() if isinstance(token, str)]
