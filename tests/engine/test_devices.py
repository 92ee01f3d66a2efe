"""The rules for device, dtype and threads, on machines that are made up where this one lacks the hardware."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import torch

from chatlocal.engine import devices
from chatlocal.engine.devices import choose_device, choose_dtype, set_threads, usable_cores
from chatlocal.engine.errors import ModelLoadError


def _machine(monkeypatch: pytest.MonkeyPatch, *, cuda: int = 0, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(1, True, "cuda:0"), (0, True, "mps"), (0, False, "cpu")])
def test_cuda_goes_before_mps_before_cpu(monkeypatch: pytest.MonkeyPatch, cuda: int, mps: bool, expected: str) -> None:
    _machine(monkeypatch, cuda=cuda, mps=mps)
    assert choose_device()[0] == torch.device(expected)
    assert choose_device("auto")[0] == torch.device(expected)
    assert choose_device("cpu")[0] == torch.device("cpu")


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch)
    with pytest.raises(ModelLoadError, match=r"no CUDA device: install"):
        choose_device("cuda")
    with pytest.raises(ModelLoadError, match=r"no Apple GPU"):
        choose_device("mps")
    _machine(monkeypatch, cuda=2)
    assert choose_device("cuda:1")[0] == torch.device("cuda:1")
    with pytest.raises(ModelLoadError, match=r"there are 2 CUDA devices"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("device", "has_bfloat16", "expected"),
    [
        ("cpu", True, torch.bfloat16),
        ("cuda", True, torch.bfloat16),
        ("cuda", False, torch.float16),
        ("mps", True, torch.bfloat16),
        ("mps", False, torch.float32),
    ],
)
def test_the_default_dtype(
    monkeypatch: pytest.MonkeyPatch, device: str, has_bfloat16: bool, expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bfloat16)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: has_bfloat16)
    dtype, note = choose_dtype(None, torch.device(device))
    assert dtype == expected
    assert str(expected).removeprefix("torch.") in note
    assert choose_dtype("float32", torch.device(device))[0] == torch.float32


def test_a_quantized_checkpoint_keeps_its_dtype_unless_asked() -> None:
    cpu = torch.device("cpu")
    assert choose_dtype(None, cpu, quantized=True)[0] is None
    assert choose_dtype("float16", cpu, quantized=True)[0] == torch.float16


def test_threads_are_lowered_to_the_cores_and_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "usable_cores", lambda: 3)
    for before, after in ((8, 3), (2, 2)):
        torch.set_num_threads(before)
        set_threads()
        assert torch.get_num_threads() == after
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    torch.set_num_threads(8)
    assert set_threads() == "threads 8: OMP_NUM_THREADS is set"
    assert torch.get_num_threads() == 8


def test_a_forked_child_has_one_thread_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_forked_with_torch", True)
    torch.set_num_threads(2)
    assert "fork" in set_threads()
    assert torch.get_num_threads() == 1
    set_threads(2)
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell")
def test_hardware_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4})
    monkeypatch.setattr(devices, "_quota", lambda: None)
    monkeypatch.setattr(devices, "_siblings", lambda cpu: f"{cpu % 3},{cpu % 3 + 3}")
    assert usable_cores() == 3
    monkeypatch.setattr(devices, "_quota", lambda: 2)
    assert usable_cores() == 2


@pytest.mark.parametrize(
    ("written", "cpus"), [("max 100000\n", None), ("250000 100000\n", 2), ("50000 100000\n", 1), (None, None)]
)
def test_the_quota_of_a_container(monkeypatch: pytest.MonkeyPatch, written: str | None, cpus: int | None) -> None:
    def read(self: Path) -> str:
        assert str(self) == "/sys/fs/cgroup/cpu.max"
        if written is None:
            raise FileNotFoundError
        return written

    monkeypatch.setattr(Path, "read_text", read)
    assert devices._quota() == cpus
