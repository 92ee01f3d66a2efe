"""Decoder layers of the common kind, each in one call of our own kernels.

Called operation by operation, a layer of a small model spends more time between its products than in them, and each
product is not the fastest that the processor can do. Llama's layer has become the common kind: root mean square norm,
attention with rotary positions, norm, gated network with SiLU; biases and norms of queries and keys where a model has
them. A model whose layers are all of that kind keeps its own code for everything around them (embedding, positions,
last norm, output matrix); its layers are run here for the length of a forward. Whether they do what the model's own do
is tried once, layer by layer.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from chatlocal.engine.runtime import native
from chatlocal.engine.runtime.cpu_linear import multiplies_tiles
from chatlocal.engine.runtime.slot_cache import SlotCache

# struct Layer of native/layer.h: sizes, norms, matrices with their biases, epsilon and scale.
_LAYER = struct.Struct("@5q4P14P2f")
_STEP = 16  # sizes are multiples of this
_WIDEST_HEAD = 256
_MOST_QUERIES = 32  # heads that share keys

# Root mean square of the difference over that of what the layer adds to its input.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


class _Layer:
    """One layer, as the kernels want it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        attention, network = _child(module, "self_attn"), _child(module, "mlp")
        _only(module, {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"})
        _only(attention, {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"})
        _only(network, {"gate_proj", "up_proj", "down_proj", "act_fn"})
        projections = [_linear(attention, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
        projections += [_linear(network, name) for name in ("gate_proj", "up_proj", "down_proj")]
        query, key, value, output, gate, up, down = projections
        self.dtype = query.weight.dtype
        self.head = int(attention.head_dim)  # type: ignore[arg-type]
        self.hidden = query.in_features
        self.key_heads = key.out_features // self.head
        heads, inner = query.out_features // self.head, gate.out_features
        shapes = {
            "k_proj": (key, self.key_heads * self.head, self.hidden),
            "v_proj": (value, self.key_heads * self.head, self.hidden),
            "o_proj": (output, self.hidden, heads * self.head),
            "up_proj": (up, inner, self.hidden),
            "down_proj": (down, self.hidden, inner),
        }
        for name, (linear, out_features, in_features) in shapes.items():
            _check((linear.out_features, linear.in_features) == (out_features, in_features), f"{name} has other sizes")
        _check(len({linear.weight.dtype for linear in projections}) == 1, "the weights have several types")
        _check(not any(size % _STEP for size in (self.hidden, inner, self.head)), f"sizes are no multiples of {_STEP}")
        _check(self.head <= _WIDEST_HEAD and heads % self.key_heads == 0, "the heads are too wide or do not divide")
        _check(heads // self.key_heads <= _MOST_QUERIES, "too many heads share keys")
        sample = torch.linspace(-4, 4, 17)
        activation = _child(network, "act_fn")
        _check(torch.allclose(activation(sample), functional.silu(sample), atol=1e-6), "the activation is not SiLU")
        epsilon = _epsilon(_child(module, "input_layernorm"))
        norms = [
            _norm(module, "input_layernorm", self.hidden, epsilon),
            _norm(module, "post_attention_layernorm", self.hidden, epsilon),
            _norm(attention, "q_norm", self.head, epsilon) if hasattr(attention, "q_norm") else None,
            _norm(attention, "k_norm", self.head, epsilon) if hasattr(attention, "k_norm") else None,
        ]
        biases = [None if linear.bias is None else linear.bias.detach().float() for linear in projections]
        # The addresses below are good as long as these live.
        self.kept = [*norms, *biases, *(linear.weight for linear in projections)]
        addresses = [_address(tensor) for tensor in norms]
        for linear, bias in zip(projections, biases, strict=True):
            addresses += [linear.weight.data_ptr(), _address(bias)]
        sizes = (self.hidden, heads, self.key_heads, self.head, inner)
        self.packed = _LAYER.pack(*sizes, *addresses, epsilon, float(attention.scaling))  # type: ignore[arg-type]


class FusedLayers:
    """The decoder layers of one model. Use `of`."""

    def __init__(self, layers: list[_Layer], decoder: Any, head: Any) -> None:
        self._layers = layers
        self._decoder = decoder
        self._head = head
        self._packed = b"".join(layer.packed for layer in layers)

    @classmethod
    def of(cls, model: Any) -> FusedLayers | str:
        """The layers of a model; why not, for a person to read, where the kernels cannot run them."""
        if native.kernels() is None:
            return "the kernels were not built for this processor"
        if model.dtype not in _TOLERANCE:
            return "the weights are neither bfloat16 nor float32"
        if model.dtype == torch.bfloat16 and multiplies_tiles():
            return "the processor multiplies bfloat16 matrices of its own (AMX)"
        decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
        modules = getattr(decoder, "layers", None)
        if not isinstance(modules, nn.ModuleList) or not hasattr(decoder, "rotary_emb"):
            return "the model's layers are not where they usually are"
        try:
            layers = [_Layer(module) for module in modules]
            _check(len({(layer.dtype, layer.key_heads, layer.head) for layer in layers}) == 1, "they differ")
        except (_Other, AttributeError, TypeError) as problem:
            return f"its layers are of another kind ({problem})"
        trouble = _trouble(layers, decoder)
        return cls(layers, decoder, model.get_output_embeddings()) if trouble is None else trouble

    def prepare(self, cache: SlotCache) -> None:
        """Give a cache its tensors, which otherwise the first forward's keys and values do."""
        for layer, slots in zip(self._layers, cache.layers, strict=True):
            if not slots.is_initialized:
                states = torch.empty(1, layer.key_heads, 0, layer.head, dtype=layer.dtype)
                slots.lazy_initialization(states, states)

    @contextmanager
    def placed(self, rows: torch.Tensor, columns: torch.Tensor, cache: SlotCache) -> Iterator[None]:
        """Inside, the model's forward runs these layers, for ids [1, tokens] that go to `rows` and `columns`.

        Both are int64 [tokens]. Tokens of one row are neighbours and in order; each sees its row up to itself.
        """
        modules, own = self._decoder._modules, self._decoder.layers
        modules["layers"] = nn.ModuleList([_StandIn(self, rows, columns, cache, own[0])])
        # Where something else stands in for the head already, it is left alone.
        multiplies = _plain(self._head) and "forward" not in vars(self._head)
        if multiplies:
            vars(self._head)["forward"] = self._multiplied
        try:
            yield
        finally:
            modules["layers"] = own
            if multiplies:
                del vars(self._head)["forward"]

    def run(
        self,
        hidden: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        rows: torch.Tensor,
        columns: torch.Tensor,
        cache: SlotCache,
    ) -> torch.Tensor:
        """`hidden` [1, tokens, hidden_size] put through all layers, as float32.

        `angles` are cosines and sines [1, tokens, rotary]; rows, columns and cache as in `placed`.
        """
        module = native.kernels()
        assert module is not None
        hidden = hidden.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        cosines, sines = (part[0].float().contiguous() for part in angles)
        tokens, threads = len(rows), torch.get_num_threads()
        size = module.scratch_size(self._layers[0].packed, tokens, int(columns.max()), threads)
        scratch = torch.empty(max(size, 1), dtype=torch.float32)
        first = cache.layers[0].keys
        assert first is not None
        places = [slots.keys.data_ptr() for slots in cache.layers if slots.keys is not None]
        places += [slots.values.data_ptr() for slots in cache.layers if slots.values is not None]
        module.decoder_layers(
            self._packed,
            array("q", places).tobytes(),
            tokens,
            rows.data_ptr(),
            columns.data_ptr(),
            first.stride(0),
            first.stride(1),
            cosines.data_ptr(),
            sines.data_ptr(),
            cosines.shape[1],
            hidden.data_ptr(),
            scratch.data_ptr(),
            threads,
            native.format_of(self._layers[0].dtype),
        )
        return hidden

    def _multiplied(self, rows: torch.Tensor) -> torch.Tensor:
        return native.linear(rows, self._head.weight)


class _StandIn(nn.Module):
    """Takes the place of all decoder layers for one forward; what is asked of a layer is asked of the first one."""

    def __init__(
        self, fused: FusedLayers, rows: torch.Tensor, columns: torch.Tensor, cache: SlotCache, first: nn.Module
    ) -> None:
        super().__init__()
        # Not as modules of this one: they would be registered a second time.
        self.__dict__.update(_fused=fused, _place=(rows, columns, cache), _first=first)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_first"], name)

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        rows, columns, cache = self._place
        run: torch.Tensor = self._fused.run(hidden_states, kwargs["position_embeddings"], rows, columns, cache)
        return run


@torch.inference_mode()
def _trouble(layers: list[_Layer], decoder: Any) -> str | None:
    """Why the kernels do not do what the layers do, None where they do: each is tried on numbers by chance."""
    tokens = 7
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.zeros(tokens, dtype=torch.long), torch.arange(tokens)
    causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()[None, None]
    dtype = layers[0].dtype
    if getattr(decoder.config, "_attn_implementation", None) == "eager":
        causal = torch.zeros(causal.shape, dtype=dtype).masked_fill_(~causal, torch.finfo(dtype).min)
    for layer in layers:
        hidden = torch.randn(1, tokens, layer.hidden, generator=generator).to(dtype)
        cache = SlotCache(1, hidden.device)
        cache.placement.rows, cache.placement.columns = 1, tokens
        try:
            angles = decoder.rotary_emb(hidden, columns[None])
            expected = layer.module(
                hidden, position_embeddings=angles, attention_mask=causal, position_ids=columns[None]
            )
            alone = FusedLayers([layer], decoder, None)
            alone.prepare(cache)
            found = alone.run(hidden, angles, rows, columns, cache)
            if found.shape != expected.shape:
                return "its layers give other shapes"
        except Exception as problem:  # layers of another kind fail in their own way
            return f"its layers are called in another way ({type(problem).__name__}: {problem})"
        # What a layer adds to what came in, but for the rounding of the sum.
        added, sum = _size(expected.float() - hidden.float()), _size(expected.float())
        distance = _size(found - expected.float())
        if not distance <= _TOLERANCE[dtype] * added + torch.finfo(dtype).eps * sum:
            return f"its layers do something else (distance {distance / added:.2g})"
    return None


def _plain(head: Any) -> bool:
    linear = type(head) is nn.Linear
    return linear and getattr(head, "bias", None) is None and native.multiplies(head.weight)


def _size(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


class _Other(Exception):
    """A layer is of another kind."""


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Other(otherwise)


def _child(module: nn.Module, name: str) -> nn.Module:
    child = getattr(module, name, None)
    if not isinstance(child, nn.Module):
        raise _Other(f"no {name}")
    return child


def _only(module: nn.Module, names: set[str]) -> None:
    _check(not hasattr(module, "_hf_hook"), "a hook moves the weights")
    others = {name for name, _ in module.named_children()} - names
    _check(not others, f"it has {', '.join(sorted(others))}")


def _linear(module: nn.Module, name: str) -> nn.Linear:
    linear = _child(module, name)
    if type(linear) is not nn.Linear or not native.multiplies(linear.weight):
        raise _Other(f"{name} is not a plain matrix")
    return linear


def _epsilon(norm: nn.Module) -> float:
    epsilon = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if not isinstance(epsilon, float):
        raise _Other("the norm says no epsilon")
    return epsilon


def _norm(module: nn.Module, name: str, size: int, epsilon: float) -> torch.Tensor:
    """The weights of a norm as float32."""
    norm = _child(module, name)
    weight = getattr(norm, "weight", None)
    if not isinstance(weight, nn.Parameter) or getattr(norm, "bias", None) is not None:
        raise _Other(f"{name} is another norm")
    _check(weight.shape == (size,) and _epsilon(norm) == epsilon, f"{name} has another size or epsilon")
    return weight.detach().float()


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
