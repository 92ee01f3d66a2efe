"""Files on disk -> transformers' own model and tokenizer, with errors that name what is missing or broken.

Reads a checkpoint folder or a GGUF file. Code inside a checkpoint is never run, and nothing here uses the network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chatlocal.engine.devices import choose_dtype
from chatlocal.engine.errors import ChatLocalError, ModelLoadError, ModelNotFound, UnsupportedInput
from chatlocal.engine.quantization import Quantization, make_fit, saved

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
# Any of these makes a tokenizer; tokenizer_config.json alone does not.
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "*.model", "*.tiktoken")


def folder_tokenizer(folder: Path) -> Any:
    """The tokenizer of a checkpoint folder: transformers' own, or of chatlocal/engine/tokenizers where that has none.

    ModelLoadError when there is none or it cannot be read.
    """
    if not any(True for pattern in _TOKENIZERS for _ in folder.glob(pattern)):
        raise ModelLoadError(
            f"{folder} has no tokenizer (tokenizer.json, tokenizer.model, vocab.json, ...): copy the tokenizer files of"
            " the model there, or load both yourself and pass Engine(model, tokenizer)."
        )
    from transformers import AutoTokenizer

    from chatlocal.engine.tokenizers import native_tokenizer

    with _explained(f"the tokenizer in {folder}"):
        native = native_tokenizer(folder)
        if native is not None:
            return native
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def folder_model(
    folder: Path,
    *,
    dtype: Any,
    device: Any,
    attn_implementation: str | None = None,
    quantization: Quantization | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """The causal language model of a checkpoint folder, on `device`, and notes.

    ModelNotFound when the folder holds no checkpoint, ModelLoadError when it is incomplete or broken or cannot be
    quantized as asked for, UnsupportedInput when it is quantized already.
    """
    config = _folder_config(folder)
    _check_weights(folder, config)
    own = getattr(config, "quantization_config", None)
    if quantization is not None:
        quantization.check_checkpoint(folder, own)
    chosen, note = choose_dtype(dtype, device, quantized=own is not None)
    options: dict[str, Any] = {"config": config, "dtype": chosen or "auto"}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    if quantization is not None:
        options["quantization_config"] = quantization.configuration(device, chosen)
    model, notes = _model(folder, folder, device, options)
    if quantization is not None:
        make_fit(model)
        if own is None:
            notes = (*notes, saved(quantization, model, chosen, folder))
        else:
            notes = (*notes, f"quantization {quantization.name}: as in the checkpoint, with the options given for it")
    return model, (note, *notes)


def gguf_tokenizer(path: Path) -> Any:
    """The tokenizer that a GGUF file describes. ModelLoadError when it has none or it cannot be read."""
    _check_gguf(path)
    from transformers import AutoTokenizer

    with _explained(f"the tokenizer in {path}"):
        return AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, trust_remote_code=False, local_files_only=True
        )


def gguf_model(
    path: Path,
    *,
    dtype: Any,
    device: Any,
    attn_implementation: str | None = None,
    quantization: Quantization | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """The model of a GGUF file and notes: dequantized, an ordinary transformers model that can be saved as such.

    With quantization "gguf" its matrices stay in their blocks where transformers has a kernel for them; that is asked
    for on the hub. UnsupportedInput for any other quantization.
    """
    _check_gguf(path)
    if quantization is not None and not quantization.gguf:
        raise UnsupportedInput(
            f"The weights in {path} are quantized already: leave quantization out, or pass 'gguf' to keep their blocks"
            " where transformers can."
        )
    chosen, note = choose_dtype(dtype, device)
    options: dict[str, Any] = {"gguf_file": path.name, "dtype": chosen}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    options |= _blocks(quantization)
    model, notes = _model(path.parent, path, device, options)
    notes = (note, *notes)
    quantizer = getattr(model, "hf_quantizer", None)
    if packed := len(getattr(quantizer, "packed_modules", ())):
        return model, (*notes, f"quantization gguf: {packed} matrices are kept in the blocks of the file")
    # Nothing of the quantization is left in the weights, and transformers refuses to save a model that says otherwise.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    name = str(chosen).removeprefix("torch.")
    notes = (*notes, f"weights: dequantized from GGUF to {name}, so memory is as for a {name} model")
    if quantization is None:
        return model, notes
    why = "transformers has no kernel for them here (it has some for a few architectures on CUDA and MPS, by way of the"
    return model, (*notes, f"quantization gguf: the blocks were not kept: {why} package kernels)")


def _blocks(quantization: Quantization | None) -> dict[str, Any]:
    """What tells transformers to unpack the blocks of a GGUF file, or to keep them."""
    import transformers

    if not hasattr(transformers, "GgufConfig"):
        return {}  # it always unpacks
    if quantization is None:
        # Else it would look on the hub for a kernel, and run it.
        return {"quantization_config": transformers.GgufConfig(dequantize=True)}
    # Left to itself it would fetch a kernel for attention as well, which takes no masks.
    return {"quantization_config": quantization.given or transformers.GgufConfig(), "attn_implementation": "sdpa"}


def _model(source: Path, shown: Path, device: Any, options: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    from transformers import AutoModelForCausalLM

    if device.type != "cpu" or "quantization_config" in options:
        # Named for the CPU too where weights are quantized: left to themselves, the libraries take a GPU.
        options["device_map"] = {"": device}  # straight to the device, without a whole copy in main memory
    loaded: Any
    with _explained(f"the model in {shown}"):
        loaded = AutoModelForCausalLM.from_pretrained(
            source, trust_remote_code=False, local_files_only=True, output_loading_info=True, **options
        )
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        # transformers would go on with random numbers in their place.
        raise ModelLoadError(
            f"The weights in {shown} lack {len(missing)} tensors that {type(model).__name__} needs, {missing[0]} among"
            " them: the checkpoint is incomplete or belongs to another architecture. Download it again."
        )
    unused = sorted(info["unexpected_keys"])
    note = f"weights: {len(unused)} tensors of the checkpoint are not used, {', '.join(unused[:1])} among them"
    return model.eval().requires_grad_(False), (note,) if unused else ()


def _folder_config(folder: Path) -> Any:
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} is not a model: it has no config.json.{_instead(folder)}")
    from transformers import AutoConfig

    with _explained(f"config.json in {folder}"):
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _instead(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return f" It is a LoRA adapter: pass its base model as the model and adapter={str(folder)!r}."
    if files := sorted(folder.glob("*.gguf")):
        return f" It has a GGUF file: pass {str(files[0])!r} as the model."
    if below := sorted(folder.glob("*/config.json")):
        return f" Did you mean {str(below[0].parent)!r}?"
    return " Pass a folder as save_pretrained writes it, a .gguf file or a hub id."


def _check_weights(folder: Path, config: Any) -> None:
    named = getattr(config, "transformers_weights", None)
    if any((folder / name).is_file() for name in (*_WEIGHTS, *([named] if named else []))):
        return
    for name in _INDEXES:
        if (folder / name).is_file():
            shards = set(json.loads((folder / name).read_text(encoding="utf-8"))["weight_map"].values())
            if missing := sorted(shard for shard in shards if not (folder / shard).is_file()):
                raise ModelLoadError(
                    f"{folder} lacks {len(missing)} of {len(shards)} weight files, {missing[0]} among them: download"
                    " the rest."
                )
            return
    raise ModelLoadError(
        f"{folder} has no weights (model.safetensors, or its index and shards): download the whole model again."
    )


def _check_gguf(path: Path) -> None:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path} is not a GGUF file (it begins with {magic!r}): if it is a Git LFS pointer or a broken download,"
            " fetch the file itself again."
        )


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn whatever transformers raises while it reads `what` into a ModelLoadError that says what to do."""
    import torch
    from safetensors import SafetensorError

    try:
        yield
    except ChatLocalError:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise ModelLoadError(
            f"There is not enough memory for {what}: choose a smaller model, a 16-bit dtype or another device."
        ) from error
    except (SafetensorError, EOFError) as error:
        raise ModelLoadError(
            f"Reading {what} failed ({error}): a file is damaged or was cut short. Delete it and download it again."
        ) from error
    except Exception as error:  # transformers raises every kind, by the place where it notices
        raise ModelLoadError(f"Reading {what} failed: {type(error).__name__}: {error}{_hint(error)}") from error


def _hint(error: Exception) -> str:
    text = str(error)
    if isinstance(error, KeyError | json.JSONDecodeError):
        return "\nA file there is damaged, or not what its name says: download it again."
    if "trust_remote_code" in text:
        return "\nThis model needs code from its checkpoint, which is never run here: choose one that transformers has."
    if "model type" in text or "model_type" in text or "Unrecognized" in text or "architecture" in text:
        return (
            "\nThe installed transformers has no causal language model of this architecture: check that it is a text"
            " generation model, or upgrade transformers."
        )
    if "above report" in text:
        return "\nThe report is shown with progress=True."
    if "attn_implementation" in text or "flash_attn" in text or "FlashAttention" in text:
        return "\nChoose another attn_implementation ('sdpa' and 'eager' need nothing installed)."
    return ""
