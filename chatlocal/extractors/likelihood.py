"""Which of many texts a model would most likely go on with.

The likelihood of a text is at most that of its first token. So one forward tells which texts are worth reading, and
those are read from the most promising on, until none that is left can be better than the best so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from chatlocal.engine import Engine, Sampling
from chatlocal.engine.families import Prompt, Text

# Texts that are read at once, and how many alternatives to a first token are asked for.
_AT_ONCE = 16
_ALTERNATIVES = 1000


class Likelihood:
    """Scores how a prompt goes on. `look` is called before each piece of work and may raise to end it."""

    def __init__(self, engine: Engine, look: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self.look = look
        self.prompt_tokens = 0
        """Of all prompts so far; an engine reads what they share once."""
        self.scored_tokens = 0

    def best(self, prompt: str, texts: Sequence[str], offsets: Mapping[str, float] | None = None) -> dict[str, float]:
        """Log-likelihoods in nats, plus offsets, of the texts that may be the likeliest; that one is among them.

        `offsets` are at most 0.
        """
        offsets = offsets or {}
        written = self._prompt(prompt)
        ids = written.ids(self._engine.tokenizer)
        self.prompt_tokens += len(ids)
        spelled = {text: self._ids(text) for text in dict.fromkeys(texts)}
        if len(spelled) <= _AT_ONCE:
            bounds = {text: offsets.get(text, 0.0) for text in spelled}
        else:
            first, least = self._first(written)
            bounds = {text: first.get(one[0], least) + offsets.get(text, 0.0) for text, one in spelled.items()}
        waiting = sorted(spelled, key=lambda text: (-bounds[text], len(spelled[text])))
        found: dict[str, float] = {}
        while waiting and (not found or bounds[waiting[0]] > max(found.values())):
            self.look()
            now, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            self.scored_tokens += sum(len(spelled[text]) for text in now)
            scores = self._engine.backend.score(ids, [spelled[text] for text in now])
            found |= {text: score + offsets.get(text, 0.0) for text, score in zip(now, scores, strict=True)}
        return found

    def _first(self, prompt: Prompt) -> tuple[dict[int, float], float]:
        """Log-probabilities of the likeliest first ids, and what others have at most."""
        self.look()
        sampling = Sampling(temperature=0.0, max_tokens=1, logprobs=_ALTERNATIVES)
        finish = self._engine.generate(prompt, sampling=sampling).finish
        if not finish.logprobs:  # the model would rather end here, and nothing is reported of an end
            return {}, 0.0
        top = {each.id: each.logprob for each in finish.logprobs[0].top}
        return top, min(top.values(), default=0.0)

    def _prompt(self, text: str) -> Prompt:
        return Prompt((Text(text),), begins=True)

    def _ids(self, text: str) -> tuple[int, ...]:
        return Prompt((Text(text),)).ids(self._engine.tokenizer)


def total(scores: Sequence[float]) -> float:
    """The log of the sum of likelihoods."""
    most = max(scores)
    return most + math.log(sum(math.exp(score - most) for score in scores))
