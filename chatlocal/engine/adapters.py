"""LoRA adapters, merged into the model's weights at load: afterwards the model is as fast as without."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path
from typing import Any

from chatlocal.engine.errors import ModelLoadError, ModelNotFound

# Python's warning filters are global: of two threads that change them, each must end before the other begins.
_merging = threading.Lock()


def merge(model: Any, folder: Path) -> tuple[Any, str]:
    """The model with the adapter in `folder` added to its weights, in the model's dtype, and a note.

    ModelNotFound when the folder holds no adapter; ModelLoadError when peft is missing, when the adapter is of a kind
    that cannot be merged, or when it belongs to another model. The model given is changed; drop it on errors.
    """
    if not (folder / "adapter_config.json").is_file():
        raise ModelNotFound(f"{folder} is not a LoRA adapter: it has no adapter_config.json.")
    try:
        import peft
    except ImportError as error:
        raise ModelLoadError("An adapter needs peft: pip install chatlocal-llm[lora]") from error
    kind = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")).get("peft_type")
    try:
        with _merging, warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft reads what transformers deprecates
            wrapped = peft.PeftModel(model, peft.PeftConfig.from_pretrained(str(folder)))
            result = wrapped.load_adapter(str(folder), "default", torch_device=str(model.device))
        problems = [*result.missing_keys, *result.unexpected_keys]
        if problems:
            raise ValueError(f"{len(problems)} tensors have no partner in the other, {problems[0]} among them")
        if not hasattr(wrapped.base_model, "merge_and_unload"):
            raise ValueError(f"adapters of type {kind} cannot be merged into the weights")
        merged = wrapped.merge_and_unload(safe_merge=True)
    except Exception as error:  # peft raises every kind, by the place where it notices
        raise ModelLoadError(
            f"The adapter in {folder} does not fit {type(model).__name__} {model.config.name_or_path!r}"
            f" ({type(error).__name__}: {error}): pass the model that it was trained on,"
            f" {_trained_on(folder)!r} by its own account."
        ) from error
    return merged.eval().requires_grad_(False), f"adapter {folder}: {kind}, merged into the weights"


def _trained_on(folder: Path) -> str:
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return str(config.get("base_model_name_or_path"))
