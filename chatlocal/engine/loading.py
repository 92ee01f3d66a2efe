"""A name -> a model and its tokenizer: a folder, a hub id, a GGUF file, or no name for the embedded default.

What is asked of the network happens here and once; a loaded model works offline.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chatlocal.engine import adapters, embedded, hub, pretrained
from chatlocal.engine.devices import choose_device, set_threads
from chatlocal.engine.errors import ModelLoadError, ModelNotFound, UnsupportedInput
from chatlocal.engine.progress import quiet, shown
from chatlocal.engine.quantization import read_quantization

if TYPE_CHECKING:
    import torch

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_HUB_PAGE = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(\w[\w.-]*/\w[\w.-]*)")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `load` found. `folder` is where the files lie (for GGUF, the file's folder); `notes` say what was chosen."""

    model: Any
    tokenizer: Any
    name: str
    folder: Path | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    path: Path  # a checkpoint folder or a GGUF file
    note: str


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    attn_implementation: str | None = None,
    quantization: Any = None,
    num_threads: int | None = None,
    local_files_only: bool | None = None,
    progress: bool | None = None,
) -> Loaded:
    """Load a model for inference: in eval mode, without gradients, on its device.

    `model` is a folder, a path to a .gguf file, a hub id, or None for the embedded default (SmolLM2-135M-Instruct: the
    first call ever fetches 93 MB and takes a minute, later ones seconds). A folder of that name goes before a hub id.
    `adapter` is a LoRA folder or hub id, merged at load. `revision` belongs to `model`; `token` and `cache_dir` serve
    every download from the hub. HF_HUB_OFFLINE and `local_files_only` keep the hub's network out; the latter also
    forbids to fetch the embedded default. `attn_implementation` goes to transformers, whose default is sdpa where the
    model has it. `quantization` keeps weights in fewer bits: a name of chatlocal.engine.quantization, which says what
    each does, or a quantization config of transformers. `num_threads` sets torch's thread count for the whole process.
    `progress` None shows a bar when stderr is a terminal and nothing elsewhere. The rules for device, dtype and threads
    are told in chatlocal.engine.devices, and what was chosen in the notes.

    Raises ModelNotFound, ModelLoadError, DownloadError, or UnsupportedInput for an argument that cannot be taken.
    """
    show = shown(progress)
    wanted = read_quantization(quantization, model, adapter=adapter, local_files_only=local_files_only)
    chosen_device, device_note = choose_device(device)
    threads_note = set_threads(num_threads)
    remote: dict[str, Any] = {
        "token": token,
        "cache_dir": None if cache_dir is None else Path(cache_dir),
        "local_files_only": local_files_only,
        "show": show,
    }
    source = _find(model, revision, remote)
    adapter_folder = None if adapter is None else _adapter_folder(adapter, remote)
    options: dict[str, Any] = {
        "dtype": dtype,
        "device": chosen_device,
        "attn_implementation": attn_implementation,
        "quantization": wanted,
    }
    with quiet(show):
        if source.path.is_dir():
            tokenizer = pretrained.folder_tokenizer(source.path)
            network, notes = pretrained.folder_model(source.path, **options)
        else:
            tokenizer = pretrained.gguf_tokenizer(source.path)
            network, notes = pretrained.gguf_model(source.path, **options)
        if adapter_folder is not None:
            network, adapter_note = adapters.merge(network, adapter_folder)
            notes = (*notes, adapter_note)
    return Loaded(
        model=network,
        tokenizer=tokenizer,
        name=source.name,
        folder=source.path if source.path.is_dir() else source.path.parent,
        notes=(source.note, device_note, threads_note, *notes),
    )


def load_model(
    folder: str | os.PathLike[str],
    *,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Any:
    """The native transformers model of a checkpoint folder alone, for inference; no tokenizer is needed."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ModelNotFound(f"There is no folder {str(path)!r}.{hub.did_you_mean(str(path))}")
    chosen_device, _ = choose_device(device)
    with quiet(shown(None)):
        return pretrained.folder_model(path, dtype=dtype, device=chosen_device)[0]


def _find(model: str | os.PathLike[str] | None, revision: str | None, remote: dict[str, Any]) -> _Source:
    if model is not None and not isinstance(model, (str, os.PathLike)):
        raise UnsupportedInput(
            f"model must be a name or a path, got {type(model).__name__}: for objects that are already loaded use"
            " Engine(model, tokenizer)."
        )
    if model is not None and not os.fspath(model):
        raise UnsupportedInput("model is empty: give a folder, a .gguf file or a hub id, or leave it out.")
    path = None if model is None else Path(model).expanduser()
    if path is not None:
        _check_name(path)
    if revision is not None and (path is None or path.exists()):
        raise UnsupportedInput("revision is for models on the hub, and this one is not from there: leave it out.")
    if path is None:
        folder = embedded.embedded_folder(progress=remote["show"], local_files_only=bool(remote["local_files_only"]))
        return _Source(embedded.NAME, folder, f"model {embedded.NAME}: the embedded default, from {folder}")
    if path.is_dir():
        return _Source(path.resolve().name, path, f"model: the folder {path}")
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelLoadError(f"{path} is not a .gguf file: pass the folder of a checkpoint, or a GGUF file.")
        return _Source(path.stem, path, f"model: the file {path}")
    name = os.fspath(model) if model is not None else ""
    if page := _HUB_PAGE.match(name):
        raise ModelNotFound(f"{name!r} is a page of the hub: pass the id of the model, {page[1]!r}.")
    if isinstance(model, os.PathLike) or path.suffix.lower() == ".gguf" or not _HUB_ID.fullmatch(name):
        raise ModelNotFound(f"There is no folder or GGUF file {str(path)!r}.{hub.did_you_mean(str(path))}")
    folder = hub.snapshot(name, revision=revision, **remote)
    return _Source(name, folder, f"model {name}: from the hub, in {folder}")


def _check_name(path: Path) -> None:
    """ModelNotFound for what the file system takes for no name at all, such as one that is too long."""
    try:
        path.exists()
    except OSError as error:
        raise ModelNotFound(f"{str(path)[:80]!r} cannot be the name of a model: {error.strerror}.") from error


def _adapter_folder(adapter: str | os.PathLike[str], remote: dict[str, Any]) -> Path:
    path = Path(adapter).expanduser()
    if path.is_dir():
        return path
    if isinstance(adapter, os.PathLike) or not _HUB_ID.fullmatch(adapter):
        raise ModelNotFound(f"There is no adapter folder {str(path)!r}.{hub.did_you_mean(str(path))}")
    return hub.snapshot(adapter, **remote)
