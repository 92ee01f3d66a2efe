"""Logits -> one id for each sequence.

A sampled id depends on the sequence's own logits and its own random numbers alone: one uniform number for each id,
looked up in the cumulative distribution. So a seed gives the same ids whatever else is in the batch. Rows are sampled
one by one for the same reason: what one request asks for must not change the arithmetic of another.
"""

from __future__ import annotations

import torch

from chatlocal.engine.runtime.backend import IdLogprob
from chatlocal.engine.runtime.sequence import Sequence

# top-p looks at so many of the best ids first, then at more; only where these are not enough is the whole row sorted.
# Measured for a vocabulary of 50,000: 0.07, 0.18 and 3.3 ms.
_CANDIDATES = (256, 4096)

# A lower temperature would be 0 or so small in float32 that dividing by it gives no numbers.
_COLDEST = 1e-30


def choose(logits: torch.Tensor, sequences: list[Sequence]) -> list[int | None]:
    """One id for each row of `logits` (float32 [sequences, vocabulary], -inf for what may not be chosen).

    The best where the temperature is 0 or None; else temperature, top-k, top-p and min-p, in that order. None for a row
    whose best is not a finite number. For a broken sequence it has no meaning.
    """
    chosen = _best(logits)
    sampled = [
        row
        for row, sequence in enumerate(sequences)
        if sequence.request.sampling.temperature and sequence.broken is None and chosen[row] is not None
    ]
    if sampled:
        ids = torch.stack([_sample(logits[row], sequences[row]) for row in sampled]).tolist()
        for row, id in zip(sampled, ids, strict=True):
            chosen[row] = id
    return chosen


def remember(sequence: Sequence, id: int, vocabulary: int, device: torch.device, change: int = 1) -> None:
    """Count a new id, or by -1 one that was taken back, where a penalty of the sequence needs the count."""
    if _penalized(sequence):
        if sequence.counts is None:
            sequence.counts = torch.zeros(vocabulary, dtype=torch.int32, device=device)
        sequence.counts[id] += change


def penalize(logits: torch.Tensor, sequence: Sequence) -> None:
    """Apply the sequence's penalties to its row, float32 [vocabulary], in place.

    The repetition penalty divides positive and multiplies negative logits of every id in prompt and answer (Keskar et
    al. 2019); presence and frequency penalties subtract for ids of the answer alone, once and by count, as OpenAI's.
    """
    if not _penalized(sequence):
        return
    sampling = sequence.request.sampling
    if sequence.prompt_seen is None:
        sequence.prompt_seen = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        sequence.prompt_seen[torch.tensor(sequence.request.prompt_ids, device=logits.device)] = True
    counts = sequence.counts if sequence.counts is not None else torch.zeros_like(logits, dtype=torch.int32)
    repetition = sampling.repetition_penalty or 1.0
    if repetition != 1.0:
        seen = sequence.prompt_seen | (counts > 0)
        logits.copy_(torch.where(seen, torch.where(logits > 0, logits / repetition, logits * repetition), logits))
    logits -= (sampling.presence_penalty or 0.0) * (counts > 0) + (sampling.frequency_penalty or 0.0) * counts


def logprobs(logits: torch.Tensor, sequences: list[Sequence]) -> list[torch.Tensor | None]:
    """The rows that asked for log-probabilities, as float32 [vocabulary], before penalties and masks."""
    return [
        logits[row].log_softmax(-1) if sequence.request.logprobs is not None else None
        for row, sequence in enumerate(sequences)
    ]


def report(row: torch.Tensor, chosen: int, alternatives: int) -> IdLogprob:
    """The chosen id with its log-probability in `row` (from `logprobs`) and the best alternatives."""
    best = row.topk(min(alternatives, row.shape[-1])) if alternatives else None
    top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best is not None else ()
    return IdLogprob(chosen, float(row[chosen]), top)


def _penalized(sequence: Sequence) -> bool:
    sampling = sequence.request.sampling
    return (
        (sampling.repetition_penalty or 1.0) != 1.0
        or bool(sampling.presence_penalty)
        or bool(sampling.frequency_penalty)
    )


def _best(logits: torch.Tensor) -> list[int | None]:
    """The place of the largest value in each row, None where that is not finite; waits for the device once."""
    if logits.device.type == "cpu":  # numpy's search is vectorized, torch's is not: 7 us for 49,152 values, and 50 us
        places = torch.from_numpy(logits.numpy().argmax(-1))
        values = logits.gather(-1, places[:, None])[:, 0]
    else:
        values, places = logits.max(-1)
    finite, found = torch.stack([values.isfinite().long(), places]).tolist()
    return [place if good else None for place, good in zip(found, finite, strict=True)]


def _sample(logits: torch.Tensor, sequence: Sequence) -> torch.Tensor:
    """One id, int64 [], of the row `logits` [vocabulary]."""
    sampling = sequence.request.sampling
    # The best becomes 0, so that a low temperature cannot overflow and every weight below is at most 1.
    scaled = (logits - logits.max()) / max(sampling.temperature or 0.0, _COLDEST)
    order: torch.Tensor | None = None
    top_k, top_p = sampling.top_k or len(scaled), 1.0 if sampling.top_p is None else sampling.top_p
    if top_k < len(scaled) or top_p < 1:
        scaled, order = _top_p(*_top_k(scaled, top_k, top_p), top_p)
    weights = scaled.exp()
    if sampling.min_p:
        weights *= weights >= sampling.min_p
    # float64: in float32 the tail of 100,000 small weights would be rounded away.
    cumulative = weights.double().cumsum(-1)
    # Below the total, so that no id of weight 0 is behind it.
    point = torch.minimum(sequence.random.random() * cumulative[-1], cumulative[-1].nextafter(cumulative.new_zeros(())))
    place = torch.searchsorted(cumulative, point, right=True)
    return place if order is None else order[place]


def _top_k(scaled: torch.Tensor, top_k: int, top_p: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The `top_k` best values in descending order, their places and probabilities; fewer if these reach `top_p`."""
    if top_k < len(scaled):
        values, order = scaled.topk(top_k)
        return values, order, values.softmax(-1)
    total = scaled.logsumexp(-1)
    for few in _CANDIDATES:
        values, order = scaled.topk(min(few, len(scaled)))
        probabilities = (values - total).exp()
        if float(probabilities.sum()) > top_p:
            return values, order, probabilities
    values, order = scaled.sort(descending=True, stable=True)
    return values, order, values.softmax(-1)


def _top_p(
    ordered: torch.Tensor, order: torch.Tensor, probabilities: torch.Tensor, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest values whose probabilities reach `top_p`, at least one, and their places."""
    before = probabilities.cumsum(-1) - probabilities
    count = max(1, int((before < top_p).sum())) if top_p < 1 else len(ordered)
    return ordered[:count], order[:count]
