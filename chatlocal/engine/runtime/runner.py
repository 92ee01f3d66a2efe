"""One forward pass over several sequences: new ids in, the logits behind each sequence's last new id out.

Two runners with one interface. SlotRunner shares a forward between sequences; PlainRunner gives each its own cache of
transformers' making and its own forward, for models whose caches cannot be shared row by row (sliding windows,
recurrent states, ...).
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slot_cache import SlotCache
from chatlocal.engine.runtime.stream import TokenStream


class Runner(Protocol):
    """What the scheduler needs of a model."""

    kind: str

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        """Read the next n ids of each sequence; float32 logits [len(work), vocabulary] behind its last one read.

        The rows from `first_row` on are used. `cached` of the sequences is moved on.
        """
        ...

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence that has ended."""
        ...

    def close(self) -> None:
        """Give the cache's memory back."""
        ...


class _Model:
    """A transformers causal LM called the same way whatever its version names the arguments."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device: torch.device = model.get_input_embeddings().weight.device
        accepted = inspect.signature(model.forward).parameters
        # transformers renamed the argument in 5.24; models outside it may still have the old name.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._keeps_logits = "logits_to_keep" in accepted

    def __call__(self, ids: torch.Tensor, cache: Any, keep: torch.Tensor, **arguments: Any) -> torch.Tensor:
        """Logits [batch, len(keep), vocabulary] at the positions `keep` (int64 [k]) of `ids` (int64 [batch, new])."""
        arguments = {"input_ids": ids, self._cache_name: cache, "use_cache": True, **arguments}
        if self._keeps_logits:
            return self.model(**arguments, logits_to_keep=keep).logits  # type: ignore[no-any-return]
        return self.model(**arguments).logits[:, keep]  # type: ignore[no-any-return]


class SlotRunner:
    """Sequences in rows of one shared cache, several in each forward."""

    kind = "slots"

    def __init__(self, model: Any) -> None:
        self._model = _Model(model)
        self._cache = SlotCache(len(DynamicCache(config=model.config).layers), self._model.device)
        self._rows: list[Sequence] = []

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        self._arrange([sequence for sequence, _ in work], first_row)
        widest = max(count for _, count in work)
        starts = torch.tensor([sequence.cached for sequence, _ in work])
        last = torch.tensor([count - 1 for _, count in work])
        # Rows with fewer new ids are padded; the next forward overwrites their padding before anything can see it.
        ids = torch.zeros(len(work), widest, dtype=torch.long)
        for row, (sequence, count) in enumerate(work):
            ids[row, :count] = torch.tensor(sequence.ids[sequence.cached : sequence.cached + count])
        columns = starts[:, None] + torch.arange(widest)
        longest = int(starts.max()) + widest
        self._cache.reserve(len(self._rows), longest)
        device = self._model.device
        mask = (torch.arange(longest) <= columns[:, :, None])[:, None].to(device)
        # Padding must not name positions that the model does not have.
        positions = torch.minimum(columns, (starts + last)[:, None]).to(device)
        self._cache.place(first_row, columns.to(device), longest)
        keep, where = torch.unique(last, return_inverse=True)
        logits = self._model(
            ids.to(device), self._cache.cache, keep.to(device), attention_mask=mask, position_ids=positions
        )
        for sequence, count in work:
            sequence.cached += count
        return logits[torch.arange(len(work), device=device), where.to(device)].float()

    def release(self, sequence: Sequence) -> None:
        if sequence in self._rows:
            row, last = self._rows.index(sequence), len(self._rows) - 1
            self._swap(row, last)
            self._rows.pop()
        if not self._rows:
            self._cache.clear()

    def close(self) -> None:
        self._rows.clear()
        self._cache.clear()

    def _arrange(self, sequences: list[Sequence], first_row: int) -> None:
        for sequence in sequences:
            if sequence not in self._rows:
                self._rows.append(sequence)
        for offset, sequence in enumerate(sequences):
            self._swap(first_row + offset, self._rows.index(sequence))

    def _swap(self, one: int, other: int) -> None:
        if one == other:
            return
        length = max(self._rows[one].cached, self._rows[other].cached)
        if max(one, other) < self._cache.rows and length:
            self._cache.swap(one, other, length)
        self._rows[one], self._rows[other] = self._rows[other], self._rows[one]


class PlainRunner:
    """A transformers cache and a forward for each sequence."""

    kind = "one by one"

    def __init__(self, model: Any) -> None:
        self._model = _Model(model)
        self._caches: dict[Sequence, Any] = {}

    def forward(self, work: list[tuple[Sequence, int]], first_row: int) -> torch.Tensor:
        return torch.cat([self._forward(sequence, count) for sequence, count in work])

    def _forward(self, sequence: Sequence, count: int) -> torch.Tensor:
        cache = self._caches.get(sequence)
        if cache is None:
            cache = self._caches[sequence] = DynamicCache(config=self._model.model.config)
        device = self._model.device
        ids = torch.tensor([sequence.ids[sequence.cached : sequence.cached + count]], device=device)
        positions = torch.arange(sequence.cached, sequence.cached + count, device=device)[None]
        logits = self._model(ids, cache, torch.tensor([count - 1], device=device), position_ids=positions)
        sequence.cached += count
        return logits[:, -1].float()

    def release(self, sequence: Sequence) -> None:
        self._caches.pop(sequence, None)

    def close(self) -> None:
        self._caches.clear()


def choose_runner(model: Any) -> tuple[Runner, str]:
    """The fastest runner that is right for this model, and why."""
    layers = DynamicCache(config=model.config).layers
    odd = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if odd:
        return PlainRunner(model), f"requests run one by one: the model keeps {', '.join(odd)} caches"
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in ("sdpa", "eager"):
        return PlainRunner(model), f"requests run one by one: attention {attention!r} takes no mask of its own"
    runner = SlotRunner(model)
    if not _agrees(model, runner):
        return PlainRunner(model), "requests run one by one: a shared forward did not give the model's own logits"
    return runner, "requests share one forward for each step"


# Two prompts of different lengths and the number of ids that the second forward of each adds.
_PROBE = ((7, 3), (4, 1))

# Root mean square of the difference over the logits' standard deviation. Measured on a model of 30 layers: 0.06 in
# bfloat16 and 4e-6 in float32 where all is well, above 1 where a single id of the context is missing.
_PROBE_TOLERANCE = 0.25


@torch.inference_mode()
def _agrees(model: Any, runner: SlotRunner) -> bool:
    """Whether two sequences that share forwards get the logits that the model gives each of them alone."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(vocabulary, (first + more,), generator=generator).tolist() for first, more in _PROBE]
    probes = _fresh(prompts)
    try:
        runner.forward([(probe, first) for probe, (first, _) in zip(probes, _PROBE, strict=True)], 0)
        shared = runner.forward([(probe, more) for probe, (_, more) in zip(probes, _PROBE, strict=True)], 0)
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False  # a model that cannot be called this way shows it in its own way
    finally:
        runner.close()
    alone = PlainRunner(model)
    expected = torch.cat([alone.forward([(probe, probe.pending)], 0) for probe in _fresh(prompts)])
    return bool((shared - expected).square().mean().sqrt() <= _PROBE_TOLERANCE * expected.std())


def _fresh(prompts: list[list[int]]) -> list[Sequence]:
    return [Sequence(Request(tuple(prompt)), TokenStream(), None) for prompt in prompts]
