"""Downloading from the hub: what is fetched, and what is said when it cannot be."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.file_download
import pytest
import torch
from huggingface_hub import constants

from chatlocal.engine import hub, loading
from chatlocal.engine.errors import DownloadError, ModelNotFound
from tests.engine.fake_hub import COMMIT, NAME, FakeHub, serve
from tests.tiny import save_tiny, tiny_model


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny(tmp_path_factory.mktemp("repository"))
    (folder / "pytorch_model.bin").write_bytes(b"the same in another format")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"the same in another format")
    (folder / "README.md").write_text("about the model")
    return folder


@pytest.fixture
def server(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serve(repository) as running:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
        template = running.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


@pytest.fixture
def cached(repository: Path, tmp_path: Path) -> Path:
    """A hub cache that has org/tiny at main, as an earlier download leaves it."""
    cache = tmp_path / "cache"
    snapshot = cache / "models--org--tiny" / "snapshots" / COMMIT
    shutil.copytree(repository, snapshot)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text(COMMIT)
    return cache


def test_a_hub_model_is_loaded_and_only_what_is_needed_is_fetched(server: FakeHub, tmp_path: Path) -> None:
    loaded = loading.load(NAME, cache_dir=tmp_path, token="hf_secret", dtype="float32")
    ids = torch.arange(20)[None]
    assert torch.equal(loaded.model(ids).logits, tiny_model()(ids).logits)
    assert loaded.name == NAME
    assert server.fetched() == {
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    # The hub's client also asks, now and then, for things that have nothing to do with the model.
    assert {sent for _, path, sent in server.requests if NAME in path} == {"Bearer hf_secret"}
    assert "hf_secret" not in repr(loaded.notes)


def test_torch_files_are_fetched_when_there_is_nothing_safer(server: FakeHub, repository: Path, tmp_path: Path) -> None:
    server.folder = tmp_path / "repository"
    shutil.copytree(repository, server.folder)
    (server.folder / "model.safetensors").unlink()
    torch.save(tiny_model().state_dict(), server.folder / "pytorch_model.bin")
    loaded = loading.load(NAME, cache_dir=tmp_path / "cache", dtype="float32")
    assert "pytorch_model.bin" in server.fetched()
    assert torch.equal(loaded.model.lm_head.weight, tiny_model().lm_head.weight)


def test_downloading_is_silent_off_a_terminal(
    server: FakeHub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hub.snapshot(NAME, cache_dir=tmp_path)
    assert capfd.readouterr() == ("", "")
    hub.snapshot(NAME, cache_dir=tmp_path / "again", show=True)
    assert "%" in capfd.readouterr().err


def test_a_loaded_model_is_found_offline(cached: Path) -> None:
    assert loading.load(NAME, cache_dir=cached).name == NAME  # HF_HUB_OFFLINE=1, see conftest.py


def test_local_files_only_asks_nothing(server: FakeHub, cached: Path) -> None:
    loading.load(NAME, cache_dir=cached, local_files_only=True)
    assert [path for _, path, _ in server.requests if NAME in path] == []


def test_a_cached_model_loads_when_the_hub_is_out_of_reach(
    cached: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _out_of_reach(repository, monkeypatch)
    assert loading.load(NAME, cache_dir=cached).name == NAME


def test_no_network(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _out_of_reach(repository, monkeypatch)
    with pytest.raises(DownloadError, match=r"'org/tiny' from the hub failed.*To work offline"):
        loading.load(NAME, cache_dir=tmp_path)


def _out_of_reach(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(repository) as stopped:
        endpoint = stopped.endpoint
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)


def test_a_name_that_is_not_in_the_cache_offline(cached: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"(?s)'org/tyni'.*HF_HUB_OFFLINE.*Did you mean 'org/tiny'\?"):
        loading.load("org/tyni", cache_dir=cached)


def test_a_wrong_name(server: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"'org/other' is neither a folder here .* nor a model on the hub"):
        loading.load("org/other", cache_dir=tmp_path)


def test_a_wrong_revision(server: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="no revision 'v9'"):
        loading.load(NAME, revision="v9", cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((403, "GatedRepo"), r"accepted its conditions.*https://huggingface.co/org/tiny, then pass token="),
        ((401, ""), r"token=\.\.\."),
        ((403, ""), r"refused access to 'org/tiny' \(403\): pass a valid token"),
        ((429, ""), r"failed \(HfHubHTTPError: .*429"),
    ],
)
def test_no_access(server: FakeHub, tmp_path: Path, refusal: tuple[int, str], message: str) -> None:
    server.refusal = refusal
    with pytest.raises((DownloadError, ModelNotFound), match=message):
        loading.load(NAME, cache_dir=tmp_path)


def test_a_full_disk(server: FakeHub, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub.file_download, "http_get", full)
        with pytest.raises(DownloadError, match="full") as caught:
            loading.load(NAME, cache_dir=tmp_path)
    needed = sum(path.stat().st_size for path in repository.iterdir() if path.suffix in (".json", ".jinja"))
    needed += (repository / "model.safetensors").stat().st_size
    assert str(tmp_path) in str(caught.value)
    assert f"{needed:,} more bytes" in str(caught.value)
    assert loading.load(NAME, cache_dir=tmp_path).name == NAME  # and once there is room, it works


def test_an_interrupted_download_is_no_model_until_it_is_finished(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_get = huggingface_hub.file_download.http_get

    def breaks(url: str, *arguments: Any, **options: Any) -> None:
        if url.endswith("model.safetensors"):
            raise ConnectionResetError("the line went dead")
        http_get(url, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(huggingface_hub.file_download, "http_get", breaks)
        with pytest.raises(DownloadError, match=r"the line went dead.*safe to try again"):
            loading.load(NAME, cache_dir=tmp_path)
    with pytest.raises(DownloadError, match=r"Only a part of 'org/tiny' .* load it once with a network"):
        loading.load(NAME, cache_dir=tmp_path, local_files_only=True)
    assert loading.load(NAME, cache_dir=tmp_path).name == NAME
