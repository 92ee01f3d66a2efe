"""Weights in 8 or 4 bits: the names that `quantization` takes, what each of them needs, and what it saves.

transformers does the work; here a name becomes its configuration, and what cannot work is refused before anything is
read. The embedding and the output matrix stay as they are, which is transformers' own rule.

- bitsandbytes-4bit: NF4 in groups of 64 (Dettmers et al., 2023, "QLoRA").
- bitsandbytes-8bit: LLM.int8() (Dettmers et al., 2022): inputs are rounded to 8 bits as well, but for columns with
  outliers. These are looked for over all rows of a forward, so that requests which share one change each other's
  rounding, and the engine may run them one by one.
- torchao-int8: rows of 8-bit steps; torchao-int4: groups of 32 with a scale and an offset. Inputs stay as they are.
- gguf: a GGUF file's own blocks, where transformers has kernels for them; else they are unpacked as without it.
"""

from __future__ import annotations

import importlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatlocal.engine.errors import ModelLoadError, UnsupportedInput

if TYPE_CHECKING:
    import torch

_LIBRARIES = {
    "bitsandbytes-4bit": "bitsandbytes",
    "bitsandbytes-8bit": "bitsandbytes",
    "torchao-int4": "torchao",
    "torchao-int8": "torchao",
}
GGUF = "gguf"
NAMES = (*sorted(_LIBRARIES), GGUF)

# The tile-packed kernels of torch for 4-bit weights need tensor cores of this compute capability.
_LEAST_CAPABILITY = 8


@dataclass(frozen=True, slots=True)
class Quantization:
    """What was asked for, by name for a person to read; `given` is transformers' configuration where that was given."""

    name: str
    given: Any = None

    @property
    def gguf(self) -> bool:
        return self.name == GGUF

    def configuration(self, device: torch.device, dtype: torch.dtype | None) -> Any:
        """transformers' configuration; `dtype` is what the other weights get.

        ModelLoadError where the library or the device has nothing for it.
        """
        if self.given is not None:
            return self.given
        try:
            return _configuration(self.name, device, dtype)
        except (ImportError, AttributeError, ValueError) as problem:
            raise ModelLoadError(
                f"The installed {_LIBRARIES[self.name]} has no {self.name} for transformers ({problem}):"
                " pip install --upgrade 'chatlocal-llm[quantization]', or choose another quantization."
            ) from problem

    def check_checkpoint(self, folder: Path, own: Any) -> None:
        """UnsupportedInput where the weights in `folder` are quantized already.

        `own` is the configuration that the checkpoint has. Options for reading weights of its own method may be given.
        """
        if own is None:
            return
        method = _method(own)
        if method != _method(self.given) or not hasattr(self.given, "get_loading_attributes"):
            raise UnsupportedInput(
                f"The weights in {folder} are quantized already ({method}) and are used as they are: leave"
                " quantization out, or choose a checkpoint with full weights."
            )


def read_quantization(
    wanted: Any,
    model: str | os.PathLike[str] | None,
    *,
    adapter: Any = None,
    local_files_only: bool | None = None,
) -> Quantization | None:
    """What the loading option says: a name of `NAMES`, a configuration of transformers, or None for weights as stored.

    UnsupportedInput for anything else, and beside options that exclude it; ModelLoadError for a library that is not
    there. Nothing is fetched before.
    """
    if wanted is None:
        return None
    found = _named(wanted) if isinstance(wanted, str) else _given(wanted)
    if adapter is not None:
        raise UnsupportedInput(
            "An adapter is merged into full weights, not into quantized ones: load it without quantization, save that"
            " model with save_pretrained, and load the result quantized."
        )
    if found.gguf and not str(model).lower().endswith(".gguf"):
        raise UnsupportedInput("quantization='gguf' keeps the blocks of a GGUF file: pass one as the model.")
    if found.gguf and local_files_only:
        raise UnsupportedInput(
            "quantization='gguf' takes its kernels from the hub, which local_files_only forbids: leave one of the two"
            " out. HF_HUB_OFFLINE=1 allows kernels that were fetched before."
        )
    return found


def _named(name: str) -> Quantization:
    if name not in NAMES:
        raise UnsupportedInput(
            f"Unknown quantization {name!r}: use one of {', '.join(NAMES)}, a quantization config of transformers, or"
            " leave it out."
        )
    library = _LIBRARIES.get(name)
    if library is not None:
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise ModelLoadError(
                f"quantization={name!r} needs {library}: pip install 'chatlocal-llm[quantization]'"
            ) from error
    return Quantization(name)


def _given(config: Any) -> Quantization:
    from transformers.utils.quantization_config import QuantizationConfigMixin

    if not isinstance(config, QuantizationConfigMixin):
        raise UnsupportedInput(
            f"quantization takes a name ({', '.join(NAMES)}) or a quantization config of transformers, got"
            f" {type(config).__name__}."
        )
    return Quantization(str(_method(config)), config)


def _method(config: Any) -> str | None:
    """The method of a configuration, which in a checkpoint is a dict."""
    method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
    return None if method is None else str(getattr(method, "value", method))


def _configuration(name: str, device: torch.device, dtype: torch.dtype | None) -> Any:
    import torch

    from chatlocal.engine.runtime.cpu_linear import multiplies_bfloat16

    transformers: Any = importlib.import_module("transformers")
    if name == "bitsandbytes-8bit":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    if name == "bitsandbytes-4bit":
        # Unpacked to bfloat16, the products take three times as long where the processor has none (see cpu_linear).
        slow = device.type == "cpu" and not multiplies_bfloat16()
        return transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32 if slow else dtype
        )
    # set_inductor_config would also change how precise torch's float32 products are in the whole process.
    if name == "torchao-int8":
        torchao = importlib.import_module("torchao.quantization")
        return transformers.TorchAoConfig(torchao.Int8WeightOnlyConfig(set_inductor_config=False))
    return transformers.TorchAoConfig(_int4(device, dtype))


def _int4(device: torch.device, dtype: torch.dtype | None) -> Any:
    import torch

    if device.type == "cpu":
        torchao = importlib.import_module("torchao.prototype.quantization.int4")
        return torchao.PrototypeInt4WeightOnlyConfig(group_size=32, set_inductor_config=False)
    if device.type != "cuda":
        raise ModelLoadError(
            f"torchao-int4 runs on CPUs and CUDA, and the device is {device}: choose 'torchao-int8' or"
            " 'bitsandbytes-4bit'."
        )
    if dtype != torch.bfloat16 or torch.cuda.get_device_capability(device)[0] < _LEAST_CAPABILITY:
        raise ModelLoadError(
            "torchao-int4 on CUDA multiplies in bfloat16, on devices of compute capability 8.0 and up: pass"
            " dtype='bfloat16' if this is one, or choose 'bitsandbytes-4bit'."
        )
    torchao = importlib.import_module("torchao.quantization")
    return torchao.Int4WeightOnlyConfig(
        group_size=32, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
    )


def saved(quantization: Quantization, model: Any, dtype: Any, shown: Path) -> str:
    """A note how many bytes the weights of a model that was just quantized take, and how many in the torch `dtype`.

    ModelLoadError where none of them changed.
    """
    before, after = _full_elements(model) * dtype.itemsize, weight_bytes(model)
    if after >= before:
        raise ModelLoadError(
            f"{quantization.name} leaves every matrix of {type(model).__name__} in {shown} as it is: their kind or"
            " their sizes do not suit it. Leave quantization out or choose another one."
        )
    name = str(dtype).removeprefix("torch.")
    return (
        f"quantization {quantization.name}: the weights take {after / 1e6:,.0f} MB, in {name} they would take"
        f" {before / 1e6:,.0f} MB"
    )


def weight_bytes(model: Any) -> int:
    """Bytes of all weights of a model with what belongs to them (scales, code books); what is shared counts once."""
    seen = {}
    for entry in model.state_dict().values():
        for tensor in _plain(entry):
            seen[tensor.data_ptr()] = tensor.nbytes
    return sum(seen.values())


def _plain(tensor: Any) -> list[torch.Tensor]:
    """The tensors that a tensor consists of, where it is one of torchao's; itself otherwise."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return []
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    return [part for name in flatten()[0] for part in _plain(getattr(tensor, name))]


def _full_elements(model: Any) -> int:
    """How many numbers the weights of a model of this configuration have when none is quantized."""
    import torch

    with torch.device("meta"):
        full: torch.nn.Module = type(model)(model.config)
    return sum(parameter.numel() for parameter in full.parameters())


def make_fit(model: Any) -> None:
    """Let the layers of a quantized model run as the engine runs layers."""
    from chatlocal.engine.runtime.quantized_linear import set_apart

    set_apart(model)
    # bitsandbytes says at each 8-bit product that it rounds its inputs, which is what LLM.int8() does.
    logger = logging.getLogger("bitsandbytes.autograd._functions")
    if _is_news not in logger.filters:
        logger.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("MatMul8bitLt: inputs will be cast")
