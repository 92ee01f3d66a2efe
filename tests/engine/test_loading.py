"""Loading by name: folders, GGUF files, adapters, and an error with a remedy for everything that can be wrong."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from chatlocal.engine import loading
from chatlocal.engine.errors import ModelLoadError, ModelNotFound, UnsupportedInput
from chatlocal.engine.progress import quiet
from tests.tiny import CHATML, save_tiny, tiny_model, tiny_tokenizer
from tests.tiny_gguf import write_gguf

IDS = torch.arange(40)[None]
TEXT = "Harry 你好 🦥<|im_end|>\n é"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def test_a_folder(saved: Path) -> None:
    loaded = loading.load(saved, dtype="float32", device="cpu")
    assert torch.equal(loaded.model(IDS).logits, tiny_model()(IDS).logits)
    assert loaded.tokenizer(TEXT)["input_ids"] == tiny_tokenizer()(TEXT)["input_ids"]
    assert loaded.name == "tiny"
    assert loaded.folder == saved
    assert "dtype float32: asked for" in loaded.notes
    assert "device cpu: asked for" in loaded.notes


def test_a_loaded_model_is_ready_for_inference(saved: Path) -> None:
    model = loading.load(str(saved)).model
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
def test_the_cpu_default_is_bfloat16_whatever_is_stored(tmp_path: Path, stored: torch.dtype) -> None:
    tiny_model().to(stored).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    loaded = loading.load(tmp_path, device="cpu")
    assert loaded.model.dtype == torch.bfloat16
    assert any(note.startswith("dtype bfloat16: cpu has it") for note in loaded.notes)


@pytest.mark.parametrize("dtype", ["float32", "fp32", torch.float32])
def test_dtype_by_name_and_by_value(saved: Path, dtype: Any) -> None:
    assert loading.load(saved, dtype=dtype).model.dtype == torch.float32


def test_attn_implementation_is_passed_on(saved: Path) -> None:
    assert loading.load(saved).model.config._attn_implementation == "sdpa"
    assert loading.load(saved, attn_implementation="eager").model.config._attn_implementation == "eager"
    with pytest.raises(ModelLoadError, match="attn_implementation"):
        loading.load(saved, attn_implementation="no_such_attention")


def test_num_threads_is_set_for_the_process(saved: Path) -> None:
    loaded = loading.load(saved, num_threads=1)
    assert torch.get_num_threads() == 1
    assert "threads 1: asked for" in loaded.notes


def test_the_model_alone_needs_no_tokenizer(tmp_path: Path) -> None:
    save_tiny(tmp_path, tokenizer=False)
    model = loading.load_model(tmp_path, dtype="float32", device="cpu")
    assert torch.equal(model(IDS).logits, tiny_model()(IDS).logits)
    assert not model.training
    with pytest.raises(ModelNotFound, match="no folder"):
        loading.load_model(tmp_path / "other")


def test_weights_in_several_files(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path, max_shard_size="20KB")
    tiny_tokenizer().save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert torch.equal(loading.load(tmp_path, dtype="float32").model(IDS).logits, tiny_model()(IDS).logits)
    shards[-1].unlink()
    with pytest.raises(ModelLoadError, match=f"lacks 1 of {len(shards)} weight files, {shards[-1].name}"):
        loading.load(tmp_path)


def test_a_gguf_file(tmp_path: Path) -> None:
    loaded = loading.load(write_gguf(tmp_path / "tiny.gguf"), dtype="float32")
    torch.testing.assert_close(loaded.model(IDS).logits, tiny_model()(IDS).logits)
    assert loaded.tokenizer(TEXT)["input_ids"] == tiny_tokenizer()(TEXT)["input_ids"]
    assert loaded.tokenizer.chat_template == CHATML
    assert loaded.tokenizer.eos_token == "<|im_end|>"
    assert loaded.name == "tiny"
    assert any("dequantized from GGUF to float32" in note for note in loaded.notes)


def test_a_quantized_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", quantization=gguf.GGMLQuantizationType.Q8_0)
    loaded = loading.load(path)
    assert loaded.model.dtype == torch.bfloat16
    exact = tiny_model().model.embed_tokens.weight
    # Q8_0 keeps a block of 32 as 8-bit steps of its largest value; float16 rounds that step by 2^-11,
    # bfloat16 the product by 2^-8.
    step = exact.abs().amax(dim=1, keepdim=True) * (0.5 / 127 + 2**-8 + 2**-10)
    assert ((loaded.model.model.embed_tokens.weight.float() - exact).abs() <= step).all()
    loaded.model.save_pretrained(tmp_path / "as an ordinary model")


@pytest.mark.parametrize("make", [save_tiny, lambda path: write_gguf(path.with_suffix(".gguf"))])
def test_loading_is_silent_off_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path / "tiny")
    capfd.readouterr()
    loading.load(path)
    assert capfd.readouterr() == ("", "")
    loading.load(path, progress=True)
    assert "%" in capfd.readouterr().err


def test_silence_leaves_no_trace_and_overlaps_between_threads() -> None:
    def settings() -> tuple[int, Any]:
        hook = transformers_logging.set_tqdm_hook(None)
        transformers_logging.set_tqdm_hook(hook)
        return transformers_logging.get_verbosity(), hook

    before, both_in, one_out = settings(), threading.Barrier(2), threading.Event()

    def first() -> None:
        with quiet():
            both_in.wait()
        one_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    with quiet():
        both_in.wait()
        one_out.wait()
        assert settings()[0] == transformers_logging.ERROR  # still silent for the one that is left
    thread.join()
    assert settings() == before


# What can be wrong with a name


def test_a_wrong_path_names_the_near_one(saved: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        loading.load(saved.parent / "tinny")
    assert f"'{saved.parent / 'tinny'}'" in str(caught.value)
    assert f"Did you mean '{saved}'?" in str(caught.value)


@pytest.mark.parametrize("name", ["./no/such/folder", "no-such-file.gguf", "~/no-such-folder", "a/b/c"])
def test_names_that_can_only_be_paths(name: str) -> None:
    with pytest.raises(ModelNotFound, match="no folder or GGUF file"):
        loading.load(name)


def test_a_name_that_may_be_on_the_hub_names_folder_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    with pytest.raises(ModelNotFound) as caught:
        loading.load("my-modle", cache_dir=tmp_path / "cache")
    for told in (str(tmp_path / "my-modle"), str(tmp_path / "cache"), "Did you mean 'my-model'?"):
        assert told in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": ""},
        {"model": object()},
        {"device": "gpu"},
        {"dtype": "int8"},
        {"dtype": torch.int8},
        {"dtype": "float33"},
        {"num_threads": 0},
        {"revision": "main"},
    ],
)
def test_arguments_that_cannot_be_taken(saved: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedInput):
        loading.load(**{"model": saved, **arguments})


def test_unknown_names_are_told_the_known_ones(saved: Path) -> None:
    with pytest.raises(UnsupportedInput, match=r"bfloat16.*float16.*float32"):
        loading.load(saved, dtype="float33")
    with pytest.raises(UnsupportedInput, match=r"'cuda'.*'mps'.*'cpu'"):
        loading.load(saved, device="gpu")


# What can be wrong with files


def test_a_folder_without_a_config(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json.*Did you mean .*tiny'\?"):
        loading.load_model(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"no config\.json.*save_pretrained"):
        loading.load(folder)
    (folder / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match=r"tiny\.gguf' as the model"):
        loading.load(folder)


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match=r"no tokenizer.*copy the tokenizer files") as caught:
        loading.load(folder)
    assert str(folder) in str(caught.value)


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"no weights.*download"):
        loading.load(folder)


@pytest.mark.parametrize("keep", [4, 2000, -1])
def test_a_truncated_weight_file(folder: Path, keep: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ModelLoadError, match="damaged or was cut short") as caught:
        loading.load(folder)
    assert str(folder) in str(caught.value)


def test_a_weight_file_that_lacks_a_tensor_is_not_filled_with_random_numbers(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"lack 1 tensors .*model\.layers\.1\.mlp\.up_proj\.weight"):
        loading.load(folder)


def test_a_tensor_of_another_shape(folder: Path) -> None:
    _edit(folder / "config.json", intermediate_size=48)
    with pytest.raises(ModelLoadError, match=str(folder)):
        loading.load(folder)


def test_a_tensor_that_is_not_used_is_noted(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "model.extra": torch.zeros(3)}, folder / "model.safetensors", {"format": "pt"})
    assert any("1 tensors of the checkpoint are not used, model.extra" in note for note in loading.load(folder).notes)


def test_an_unknown_architecture(folder: Path) -> None:
    _edit(folder / "config.json", model_type="no_such_model", architectures=["NoSuchModel"])
    with pytest.raises(ModelLoadError, match=r"(?s)no_such_model.*upgrade transformers"):
        loading.load(folder)


def test_code_from_a_checkpoint_is_never_run(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "was run"
    (folder / "modeling.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    auto_map = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    _edit(folder / "config.json", model_type="no_such_model", auto_map=auto_map)
    with pytest.raises(ModelLoadError, match="never run here"):
        loading.load(folder)
    assert not trace.exists()


def test_files_that_are_not_models(tmp_path: Path) -> None:
    for name, message in (("weights.bin", "not a .gguf file"), ("pointer.gguf", "not a GGUF file .*Git LFS")):
        (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1")
        with pytest.raises(ModelLoadError, match=message):
            loading.load(tmp_path / name)


def test_a_truncated_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf"):
        loading.load(path)


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# Adapters


@pytest.fixture
def adapter(tmp_path: Path) -> tuple[Path, torch.Tensor]:
    """A LoRA adapter for the tiny model as peft saves it, and the logits of the model with it, unmerged."""
    import peft

    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads what transformers deprecates
        model = peft.get_peft_model(tiny_model(), config)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:  # lora_B starts as zeros, which would change nothing
                parameter.normal_(std=0.3)
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", model.eval()(IDS).logits.detach()


def test_a_lora_adapter_is_merged(saved: Path, adapter: tuple[Path, torch.Tensor]) -> None:
    loaded = loading.load(saved, adapter=adapter[0], dtype="float32")
    torch.testing.assert_close(loaded.model(IDS).logits, adapter[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(adapter[1], tiny_model()(IDS).logits, atol=1e-2)
    assert type(loaded.model) is type(tiny_model())
    assert not any("lora" in name for name in loaded.model.state_dict())
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert any("merged into the weights" in note for note in loaded.notes)


def test_an_adapter_without_peft(
    saved: Path, adapter: tuple[Path, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelLoadError, match=r"pip install chatlocal-llm\[lora\]"):
        loading.load(saved, adapter=adapter[0])


@pytest.mark.parametrize("other", [{"hidden_size": 64}, {"num_hidden_layers": 3}, {"num_hidden_layers": 1}])
def test_an_adapter_of_another_model(tmp_path: Path, adapter: tuple[Path, torch.Tensor], other: dict[str, int]) -> None:
    folder = save_tiny(tmp_path / "other", **other)
    with pytest.raises(ModelLoadError, match="does not fit LlamaForCausalLM") as caught:
        loading.load(folder, adapter=adapter[0])
    assert str(adapter[0]) in str(caught.value)


def test_an_adapter_for_other_modules(saved: Path, adapter: tuple[Path, torch.Tensor]) -> None:
    _edit(adapter[0] / "adapter_config.json", target_modules=["c_attn"])
    with pytest.raises(ModelLoadError, match="does not fit"):
        loading.load(saved, adapter=adapter[0])


def test_adapters_and_models_that_change_places(saved: Path, adapter: tuple[Path, torch.Tensor]) -> None:
    with pytest.raises(ModelNotFound, match=r"not a LoRA adapter: it has no adapter_config\.json"):
        loading.load(saved, adapter=saved)
    shutil.copy(saved / "tokenizer.json", adapter[0])
    with pytest.raises(ModelNotFound, match="is a LoRA adapter: pass its base model"):
        loading.load(adapter[0])


def test_a_wrong_adapter_name(saved: Path, adapter: tuple[Path, torch.Tensor]) -> None:
    with pytest.raises(ModelNotFound, match=r"no adapter folder .* Did you mean .*adapter'\?"):
        loading.load(saved, adapter=adapter[0].with_name("adaptor"))
    with pytest.raises(ModelNotFound, match="org/no-adapter"):
        loading.load(saved, adapter="org/no-adapter")
