"""Models on the Hugging Face hub: a name to a folder on disk, with errors that say what to do.

The downloads, their resuming and their checksums are huggingface_hub's; what to fetch and what to say is ours.
"""

from __future__ import annotations

import difflib
import errno
import os
from pathlib import Path
from typing import Any

from tqdm import tqdm

from chatlocal.engine.errors import ChatLocalError, DownloadError, ModelNotFound
from chatlocal.engine.progress import quiet

# The root's files only: fnmatch's leading star would also take onnx/model.safetensors and the like.
_TEXT = ("*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
_SAFETENSORS = ("model.safetensors", "model-*-of-*.safetensors", "adapter_model.safetensors")
_PICKLES = ("pytorch_model.bin", "pytorch_model-*-of-*.bin", "adapter_model.bin")


def snapshot(
    name: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool | None = None,
    show: bool = False,
) -> Path:
    """The folder of a hub model's config, tokenizer and weights, downloaded where needed.

    Weights come as safetensors; torch's .bin files are fetched only when there are none. ModelNotFound for a wrong
    name or revision, DownloadError for the network, the disk, a checksum or missing rights.
    """
    from huggingface_hub import constants

    offline = bool(local_files_only) or constants.is_offline_mode()
    options: dict[str, Any] = {
        "revision": revision,
        "token": token,
        "cache_dir": cache_dir,
        "local_files_only": offline,
        "tqdm_class": _bar_class(show),
    }
    folder = Path(cache_dir or constants.HF_HUB_CACHE)
    with quiet(show):
        try:
            path = _snapshot(name, _SAFETENSORS, options)
            if not any(path.glob("*.safetensors")):
                path = _snapshot(name, _PICKLES, options)
        except Exception as error:  # whatever the hub's client, its HTTP library or the disk raise
            raise _explained(error, name, revision, folder, offline, options) from error
    return path


def _snapshot(name: str, weights: tuple[str, ...], options: dict[str, Any]) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=[*_TEXT, *weights], **options))


def _bar_class(show: bool) -> type[tqdm[Any]]:
    class Bar(tqdm):  # type: ignore[type-arg]
        """The hub's own class takes its switch from a global, this one from the caller."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": not show})

    return Bar


def _explained(
    error: Exception,
    name: str,
    revision: str | None,
    folder: Path,
    offline: bool,
    options: dict[str, Any],
) -> ChatLocalError:
    from huggingface_hub import errors

    at = f" (revision {revision})" if revision else ""
    if isinstance(error, errors.IncompleteSnapshotError):
        return DownloadError(
            f"Only a part of {name!r}{at} is in {folder}: load it once with a network connection to fetch the rest."
        )
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception) and not offline:
        error = error.__cause__  # nothing is cached, and this is why the hub did not help
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            f"The hub lets only people who accepted its conditions download {name!r}: accept them at"
            f" https://huggingface.co/{name}, then pass token=... or set HF_TOKEN."
        )
    if isinstance(error, (errors.RepositoryNotFoundError, errors.HFValidationError)):
        return ModelNotFound(
            f"{name!r} is neither a folder here ({Path(name).absolute()}) nor a model on the hub that you may see:"
            f" check the spelling, or pass token=... if it is private.{did_you_mean(name, folder)}"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelNotFound(f"{name!r} on the hub has no revision {revision!r}: use one of its branches or commits.")
    if isinstance(error, errors.LocalEntryNotFoundError) and offline:
        return ModelNotFound(
            f"{name!r}{at} is neither a folder here ({Path(name).absolute()}) nor among the hub models in {folder}, and"
            " offline mode (HF_HUB_OFFLINE or local_files_only) forbids to look further: check the spelling, or load it"
            f" once with a network connection.{did_you_mean(name, folder)}"
        )
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code in (401, 403):
        return DownloadError(
            f"The hub refused access to {name!r} ({error.response.status_code}): pass a valid token=... or set"
            " HF_TOKEN."
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return DownloadError(
            f"The disk of {folder} is full: {name!r} needs {_missing_bytes(name, options)} there. Free some space or"
            " pass cache_dir=... on another disk."
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
        return DownloadError(f"{folder} cannot be written ({error.strerror}): pass cache_dir=... or set HF_HOME.")
    return DownloadError(
        f"Fetching {name!r}{at} from the hub failed ({type(error).__name__}: {_first_line(error)}). It is safe to try"
        " again. To work offline, load it once with a network connection or pass the path of a downloaded folder as the"
        f" model.{did_you_mean(name, folder)}"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _missing_bytes(name: str, options: dict[str, Any]) -> str:
    """What is still to be downloaded, in words; the hub is asked once more, and may not answer."""
    from huggingface_hub import snapshot_download

    try:
        files: Any = snapshot_download(name, **{**options, "dry_run": True, "allow_patterns": [*_TEXT, *_SAFETENSORS]})
    except Exception:  # no second error on top of the first: the message does without the number
        return "more room"
    return f"{sum(file.file_size or 0 for file in files if file.will_download):,} more bytes"


def did_you_mean(name: str, cache: Path | None = None) -> str:
    """A sentence with the nearest folder beside `name` or model in the hub's cache, or nothing."""
    path = Path(name).expanduser()
    beside: dict[str, str] = {}
    if path.parent.is_dir():
        with os.scandir(path.parent) as entries:
            beside = {entry.name.lower(): str(path.with_name(entry.name)) for entry in entries}
    near = difflib.get_close_matches(path.name.lower(), beside, n=1)
    if near:
        return f" Did you mean {beside[near[0]]!r}?"
    cached: dict[str, str] = {}
    if cache is not None and cache.is_dir():
        names = [entry.name.removeprefix("models--").replace("--", "/") for entry in cache.glob("models--*")]
        cached = {name.lower(): name for name in names}
    near = difflib.get_close_matches(name.lower(), cached, n=1)
    return f" Did you mean {cached[near[0]]!r}?" if near else ""
