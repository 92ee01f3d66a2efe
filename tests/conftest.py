"""What every test shares: no network, few threads, and the one real model."""

from __future__ import annotations

import os
import socket

# huggingface_hub and tokenizers read these when they are imported, so they are set before anything else.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import torch

if TYPE_CHECKING:
    from chatlocal.engine.engine import Engine

# On a busy machine any example may take long; what is asserted is never a time.
hypothesis.settings.register_profile("chatlocal", deadline=None)
hypothesis.settings.load_profile("chatlocal")

# Where several processes test at once, threads would only compete.
_THREADS = int(os.environ.get("CHATLOCAL_TEST_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2"))
torch.set_num_threads(_THREADS)


@pytest.fixture(scope="session", autouse=True)
def _offline() -> Iterator[None]:
    """Only this machine can be reached from the tests' process (fetching the embedded model is pip's, in its own)."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise ConnectionRefusedError(f"Tests run offline, and one tried to reach {address!r}.")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", local_only)
        yield


@pytest.fixture(autouse=True)
def _threads() -> None:
    """Loading a model sets torch's thread count for the process; no test inherits another's."""
    torch.set_num_threads(_THREADS)


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The embedded model's folder in the user's cache; the first run ever fetches and converts it (under a minute)."""
    from chatlocal.engine.embedded import embedded_folder

    return embedded_folder()


@pytest.fixture(scope="session")
def embedded_engine(embedded_folder: Path) -> Iterator[Engine]:
    """One engine on the embedded model in float32, shared by the whole run. Tests must not close it."""
    from chatlocal.engine.engine import Engine

    engine = Engine.load(dtype="float32")
    yield engine
    engine.close()
