"""Which way of running a model is the fastest right one: rules on what the model says of itself, then a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.causal_model import CausalModel
from chatlocal.engine.runtime.fused_layers import FusedLayers
from chatlocal.engine.runtime.packed_runner import PackedRunner
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.single_runners import PlainRunner, RereadingRunner
from chatlocal.engine.runtime.slot_runner import SlotRunner

_SHARED = "requests share one forward for each step"


@dataclass(frozen=True, slots=True)
class Choice:
    """A runner and the width of the model's logits; for a person to read, how it runs and what runs the layers."""

    runner: Runner
    how: str
    width: int
    layers: str = "as the model has them"


@torch.inference_mode()
def choose_runner(model: Any, *, fused_layers: bool = True) -> Choice:
    """The fastest runner that gives the logits of the model's own plain forward; ModelLoadError when that fails.

    `fused_layers` allows our own kernels for the model's layers.
    """
    layers = _cache_layers(model)
    rereading = RereadingRunner(model)
    try:
        expected = read_probe(rereading, model)
    except Exception as problem:
        raise ModelLoadError(
            f"{type(model).__name__} cannot continue a text, its forward pass fails"
            f" ({type(problem).__name__}: {problem}): choose a causal language model."
        ) from problem
    width = expected.shape[-1]
    trouble = _not_shared(model, layers)
    kernels = "as the model has them"
    if trouble is None and fused_layers:
        fused = FusedLayers.of(model)
        if isinstance(fused, FusedLayers):
            packed = PackedRunner(model, len(layers), fused)
            unlike = _trouble(packed, model, expected)
            if unlike is None:
                return Choice(packed, _SHARED, width, "in kernels of our own")
            fused = unlike
        kernels = f"{kernels}: {fused}"
    if trouble is None:
        slots = SlotRunner(model, len(layers))
        trouble = _trouble(slots, model, expected)
        if trouble is None:
            return Choice(slots, _SHARED, width, kernels)
    stateful = _stateful(model, layers)
    grows = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
    plain = PlainRunner(model, in_pieces=not stateful, takes_back=grows and not stateful)
    how = f"requests run one by one: {trouble}"
    trouble = _trouble(plain, model, expected)
    if trouble is None:
        return Choice(plain, how, width)
    return Choice(rereading, f"{how}; each id costs a forward over the whole text: with a cache {trouble}", width)


def _cache_layers(model: Any) -> list[Any]:
    """The layers of the cache that transformers makes for the model; none where it knows of none."""
    try:
        return list(DynamicCache(config=model.config).layers)
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


def _not_shared(model: Any, layers: list[Any]) -> str | None:
    """Why sequences of this model cannot share a forward, where the probe is too short to see it."""
    odd = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if not layers:
        return "transformers knows no cache for the model"
    if odd:
        return f"the model keeps {', '.join(odd)} caches"
    attention = CausalModel(model).attention
    if attention not in ("sdpa", "eager"):
        return f"attention {attention!r} takes no mask of its own"
    if attention == "eager" and not getattr(model, "_supports_attention_backend", False):
        return "the model makes attention masks of its own"
    # These choose their frequencies by the longest sequence of a forward.
    by_length = sorted(_rope_types(model.config.get_text_config()) & {"dynamic", "longrope"})
    return f"positions of type {by_length[0]!r} depend on the longest text" if by_length else None


def _rope_types(config: Any) -> set[str]:
    parameters = getattr(config, "rope_parameters", None) or {}
    # One set of parameters, or one for each type of layer.
    groups = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    return {str(group.get("rope_type", "default")) for group in groups}


def _stateful(model: Any, layers: list[Any]) -> bool:
    attends = all(isinstance(layer, (DynamicLayer, DynamicSlidingWindowLayer)) for layer in layers)
    return not layers or not attends or bool(getattr(model, "_is_stateful", False))


# Two prompts of different lengths: how many ids the first forward of each reads, and how many the second.
_PROBE = ((7, 3), (4, 1))

# Root mean square of the difference over the logits' standard deviation. Measured: below 1e-6 in float32 on tiny models
# of 40 architectures and 4e-6 on a model of 30 layers, where it is 0.06 in bfloat16 and above 1 where a single id of
# the context is missing.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_NARROW_TOLERANCE = 0.25


def _trouble(runner: Runner, model: Any, expected: torch.Tensor) -> str | None:
    """What is wrong with the runner's logits for the probe, None where they are as expected."""
    try:
        logits = read_probe(runner, model)
    except Exception as problem:  # a model that cannot be called this way shows it in its own way
        return f"a forward fails ({type(problem).__name__}: {problem})"
    finally:
        runner.close()
    distance = float((logits - expected).square().mean().sqrt() / expected.std())
    if distance <= _TOLERANCE.get(model.dtype, _NARROW_TOLERANCE):
        return None
    return f"a forward gives other logits than the model alone (distance {distance:.2g})"


def read_probe(runner: Runner, model: Any) -> torch.Tensor:
    """The runner's logits [2, vocabulary] behind two prompts, read in two forwards."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = CausalModel(model).vocabulary
    prompts = [torch.randint(vocabulary, (first + more,), generator=generator).tolist() for first, more in _PROBE]
    probes = [Sequence(Request(tuple(prompt))) for prompt in prompts]
    pieces = zip(probes, _PROBE, strict=True)
    runner.forward([(probe, first if runner.in_pieces else probe.pending - 1) for probe, (first, _) in pieces])
    return runner.forward([(probe, probe.pending) for probe in probes])
