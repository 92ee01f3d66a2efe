"""Logits -> one id for each sequence.

A sampled id depends on the sequence's own logits and its own random numbers alone: one uniform number for each id,
looked up in the cumulative distribution. So a seed gives the same ids whatever else is in the batch.
"""

from __future__ import annotations

import torch

from chatlocal.engine.runtime.backend import IdLogprob
from chatlocal.engine.runtime.sequence import Sequence


def choose(logits: torch.Tensor, sequences: list[Sequence], masks: list[torch.Tensor | None]) -> list[int]:
    """One id for each row of `logits` (float32 [sequences, vocabulary], changed in place).

    `masks` are the allowed ids of each row, bool [vocabulary], or None for all. Penalties come first, then the mask,
    temperature, top-k, top-p and min-p, in that order.
    """
    for row, (sequence, mask) in enumerate(zip(sequences, masks, strict=True)):
        penalize(logits[row], sequence)
        if mask is not None:
            logits[row].masked_fill_(~mask.to(logits.device), -torch.inf)
    chosen = logits.argmax(-1)
    sampled = [row for row, sequence in enumerate(sequences) if sequence.request.sampling.temperature]
    if sampled:
        chosen[sampled] = _sample(logits[sampled], [sequences[row] for row in sampled])
    return chosen.tolist()


def remember(sequence: Sequence, chosen: int, vocabulary: int, device: torch.device) -> None:
    """Count a new id where a penalty of the sequence needs the count."""
    if _penalized(sequence):
        if sequence.counts is None:
            sequence.counts = torch.zeros(vocabulary, dtype=torch.int32, device=device)
        sequence.counts[chosen] += 1


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


def _sample(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    device = logits.device
    settings = [sequence.request.sampling for sequence in sequences]
    temperature = torch.tensor([s.temperature for s in settings], device=device)
    # The best logit becomes 0, so that a tiny temperature cannot overflow.
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature[:, None]
    order: torch.Tensor | None = None
    if any((s.top_k or 0) > 0 or (s.top_p if s.top_p is not None else 1.0) < 1 for s in settings):
        logits, order = logits.sort(dim=-1, descending=True, stable=True)
        logits = _top_k(logits, [s.top_k or 0 for s in settings])
        logits = _top_p(logits, [1.0 if s.top_p is None else s.top_p for s in settings])
    probabilities = logits.softmax(-1)
    min_p = torch.tensor([s.min_p or 0.0 for s in settings], device=device)
    probabilities = probabilities.where(probabilities >= min_p[:, None] * probabilities.amax(-1, keepdim=True), 0)
    # float64: in float32 the tail of 100,000 small probabilities would be rounded away.
    cumulative = probabilities.double().cumsum(-1)
    uniform = torch.tensor([sequence.random.random() for sequence in sequences], dtype=torch.float64, device=device)
    point = (uniform * cumulative[:, -1])[:, None]
    chosen = torch.searchsorted(cumulative, point, right=True).clamp(max=logits.shape[-1] - 1)
    return (chosen if order is None else order.gather(-1, chosen))[:, 0]


def _top_k(ordered: torch.Tensor, limits: list[int]) -> torch.Tensor:
    """Keep the first k of each row of descending logits; 0 keeps all."""
    width = ordered.shape[-1]
    keep = torch.tensor([k if 0 < k < width else width for k in limits], device=ordered.device)
    return ordered.masked_fill(torch.arange(width, device=ordered.device) >= keep[:, None], -torch.inf)


def _top_p(ordered: torch.Tensor, limits: list[float]) -> torch.Tensor:
    """Keep the fewest ids of each row of descending logits whose probabilities reach p; always the first."""
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    drop = before >= torch.tensor(limits, device=ordered.device)[:, None]
    drop[:, 0] = False
    return ordered.masked_fill(drop, -torch.inf)
