"""Weights in fewer bits: names, refusals, what is passed on, and real models where the libraries are installed."""

from __future__ import annotations

import json
import sys
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import pytest
import torch
import transformers
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from chatlocal import ChatLocal, Engine, LocalLLM
from chatlocal.engine import constraints, loading
from chatlocal.engine.errors import ModelLoadError, UnsupportedInput
from chatlocal.engine.messages import Sampling
from chatlocal.engine.quantization import NAMES, Quantization, read_quantization, weight_bytes
from chatlocal.integrations import langchain, llama_index
from tests.scripted import scripted_engine
from tests.tiny import save_tiny, tiny_model
from tests.tiny_gguf import write_gguf

LIBRARIES = {
    "bitsandbytes-4bit": "bitsandbytes",
    "bitsandbytes-8bit": "bitsandbytes",
    "torchao-int4": "torchao",
    "torchao-int8": "torchao",
}
IDS = torch.arange(40)[None]
CPU = torch.device("cpu")
# Every size is a multiple of 64, the largest group; heads of 16, so that our own kernels would take the full layers.
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny", **SIZES)


# What is refused, before anything is fetched


@pytest.mark.parametrize("wanted", ["int8", "torchao", "", "GPTQ"])
def test_an_unknown_name_is_told_the_known_ones(saved: Path, wanted: str) -> None:
    with pytest.raises(UnsupportedInput) as caught:
        loading.load(saved, quantization=wanted)
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize("wanted", [8, {"load_in_8bit": True}, torch.int8])
def test_other_things_than_names_and_configurations(saved: Path, wanted: Any) -> None:
    with pytest.raises(UnsupportedInput, match=f"got {type(wanted).__name__}"):
        loading.load(saved, quantization=wanted)


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_a_library_that_is_not_there(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModelLoadError, match=rf"needs {library}: pip install 'chatlocal-llm\[quantization\]'"):
        loading.load("no/such-model", quantization=name)


@pytest.mark.parametrize("name", ["torchao-int4", "torchao-int8"])
def test_a_library_that_has_it_no_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.startswith("torchao.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torchao", types.ModuleType("torchao"))
    with pytest.raises(ModelLoadError, match=r"installed torchao has no .*--upgrade"):
        Quantization(name).configuration(CPU, torch.bfloat16)


@pytest.mark.parametrize(("device", "dtype"), [("mps", torch.bfloat16), ("cuda:0", torch.float16)])
def test_a_device_that_has_no_4_bit_kernels(device: str, dtype: torch.dtype) -> None:
    with pytest.raises(ModelLoadError, match=r"choose .*'bitsandbytes-4bit'"):
        Quantization("torchao-int4").configuration(torch.device(device), dtype)


def test_an_old_gpu_has_no_4_bit_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(ModelLoadError, match=r"compute capability 8\.0"):
        Quantization("torchao-int4").configuration(torch.device("cuda:0"), torch.bfloat16)


def test_an_adapter_is_not_merged_into_quantized_weights(saved: Path) -> None:
    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    with pytest.raises(UnsupportedInput, match="load it without quantization"):
        loading.load(saved, quantization=config, adapter="some/adapter")


def test_gguf_is_for_gguf_files(saved: Path) -> None:
    for model in (saved, "some/model", None):
        with pytest.raises(UnsupportedInput, match="pass one as the model"):
            loading.load(model, quantization="gguf")


def test_gguf_kernels_come_from_the_hub(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedInput, match="local_files_only forbids"):
        loading.load(path, quantization="gguf", local_files_only=True)
    assert read_quantization("gguf", path) == Quantization("gguf")


def test_a_gguf_file_is_not_quantized_again(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(UnsupportedInput, match=r"tiny\.gguf are quantized already"):
        loading.load(path, quantization=transformers.BitsAndBytesConfig(load_in_8bit=True))


def test_a_quantized_checkpoint_is_not_quantized_again(tmp_path: Path) -> None:
    config = json.loads((save_tiny(tmp_path / "tiny") / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedInput, match=r"quantized already \(gptq\).*leave quantization out"):
        loading.load(tmp_path / "tiny", quantization=transformers.BitsAndBytesConfig(load_in_8bit=True))


@pytest.mark.parametrize("own", [{"quant_method": "mxfp4"}, transformers.Mxfp4Config()])
def test_options_for_reading_a_quantized_checkpoint(own: Any) -> None:
    options = transformers.Mxfp4Config(dequantize=True)
    Quantization("mxfp4", options).check_checkpoint(Path("model"), own)
    with pytest.raises(UnsupportedInput, match="mxfp4"):
        Quantization("fp8", transformers.FineGrainedFP8Config()).check_checkpoint(Path("model"), own)


# What is passed on


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What transformers is asked for; it answers with a model that is not quantized."""
    asked: dict[str, Any] = {}
    info = {"missing_keys": set(), "unexpected_keys": set()}

    def from_pretrained(source: Path, **options: Any) -> tuple[Any, Any]:
        asked.update(options)
        model = tiny_model(**SIZES).to(options["dtype"])
        model.hf_quantizer = SimpleNamespace(packed_modules={"lm_head.weight": None})
        return model, info

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    return asked


def test_a_configuration_goes_to_transformers_with_the_device(saved: Path, given: dict[str, Any]) -> None:
    config = transformers.QuantoConfig(weights="int8")
    with pytest.raises(ModelLoadError, match=r"quanto leaves every matrix of LlamaForCausalLM .*tiny as it is"):
        loading.load(saved, quantization=config, device="cpu")
    assert given["quantization_config"] is config
    assert given["device_map"] == {"": CPU}  # left to itself, bitsandbytes takes a GPU where there is one
    assert given["dtype"] == torch.bfloat16


@pytest.mark.parametrize(("name", "in_4_bits"), [("bitsandbytes-4bit", True), ("bitsandbytes-8bit", False)])
def test_names_of_bitsandbytes(name: str, in_4_bits: bool) -> None:
    config = Quantization(name).configuration(CPU, torch.float32)
    assert (config.load_in_4bit, config.load_in_8bit) == (in_4_bits, not in_4_bits)
    if in_4_bits:
        assert config.bnb_4bit_quant_type == "nf4"
        assert config.bnb_4bit_compute_dtype == torch.float32
        on_gpu = Quantization(name).configuration(torch.device("cuda:0"), torch.bfloat16)
        assert on_gpu.bnb_4bit_compute_dtype == torch.bfloat16


def test_without_the_option_nothing_is_quantized(saved: Path, tmp_path: Path, given: dict[str, Any]) -> None:
    loading.load(saved)
    assert "quantization_config" not in given
    loading.load(write_gguf(tmp_path / "tiny.gguf"))
    assert given["quantization_config"].dequantize  # else transformers looks on the hub for kernels, and runs them


def test_blocks_of_a_gguf_file_that_are_kept(tmp_path: Path, given: dict[str, Any]) -> None:
    loaded = loading.load(write_gguf(tmp_path / "tiny.gguf"), quantization="gguf")
    assert not given["quantization_config"].dequantize
    assert given["attn_implementation"] == "sdpa"  # else it fetches a kernel that takes no masks
    assert loaded.model.hf_quantizer is not None
    assert "quantization gguf: 1 matrices are kept in the blocks of the file" in loaded.notes
    assert not any("dequantized" in note for note in loaded.notes)


def test_blocks_of_a_gguf_file_that_cannot_be_kept(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", quantization=gguf.GGMLQuantizationType.Q8_0)
    kept, plain = (loading.load(path, quantization=wanted, dtype="float32") for wanted in ("gguf", None))
    assert torch.equal(kept.model(IDS).logits, plain.model(IDS).logits)
    assert any("dequantized from GGUF to float32" in note for note in kept.notes)
    assert any("the blocks were not kept" in note for note in kept.notes)


def test_the_frameworks_pass_the_name_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    for module in (langchain, llama_index):
        monkeypatch.setattr(
            module, "shared_engine", lambda name, **options: asked.append(options) or scripted_engine("Hi")
        )
    chat, llm = ChatLocal(quantization="torchao-int8"), LocalLLM(quantization="torchao-int8")
    assert chat.invoke("Hi").content == llm.complete("Hi").text == "Hi"
    assert asked
    assert all(options == {"quantization": "torchao-int8"} for options in asked)
    assert json.loads(llm.to_json())["quantization"] == "torchao-int8"


# How much the weights take


def test_bytes_of_shared_weights_count_once() -> None:
    model = tiny_model(tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert weight_bytes(model) == 4 * sum(parameter.numel() for parameter in model.parameters())


def test_bytes_of_a_tensor_made_of_several() -> None:
    layer = nn.Linear(8, 4, bias=False)
    parts = TwoTensor(torch.zeros(4, 8), torch.zeros(4, 8))
    layer.weight = nn.Parameter(parts, requires_grad=False)
    assert weight_bytes(layer) == 2 * 4 * 4 * 8


# Real ones


def _installed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(LIBRARIES[name], reason=f"{LIBRARIES[name]} is not installed (extra: quantization)")


@pytest.fixture(scope="module", params=sorted(LIBRARIES))
def engine(request: pytest.FixtureRequest, saved: Path) -> Any:
    _installed(request.param)
    with Engine.load(saved, quantization=request.param, dtype="float32", device="cpu") as engine:
        yield engine


def _name(engine: Any) -> str:
    return next(note.split()[1].rstrip(":") for note in engine.describe()["notes"] if note.startswith("quantization"))


def _furthest(exact: torch.Tensor, name: str) -> torch.Tensor:
    """How far a weight may be from what it was, by the method's definition. `exact`: float32 [rows, columns]."""
    if name in ("torchao-int8", "bitsandbytes-8bit"):  # 127 steps up to the largest of the row
        return exact.abs().amax(1, keepdim=True) / 127 / 2
    groups = exact.reshape(len(exact), -1, 32 if name == "torchao-int4" else 64)
    if name == "torchao-int4":  # 15 steps from the least to the largest of the group
        steps = (groups.amax(2) - groups.amin(2)) / 15
        return (steps / 2).repeat_interleave(32, 1)
    # NF4's widest gap is that between -1 and -0.6962, in units of the group's largest value.
    return (groups.abs().amax(2) * 0.3038 / 2).repeat_interleave(64, 1)


def test_weights_are_near_what_they_were(engine: Any) -> None:
    name, full = _name(engine), tiny_model(**SIZES)
    changed = 0
    for path, layer in engine.model.named_modules():
        if not path.endswith("_proj"):
            continue
        exact = full.get_submodule(path).weight
        with torch.inference_mode():
            found = layer(torch.eye(layer.in_features)).T
        # float16 and bfloat16 scales, and offsets in them, round by up to 2^-8 of the largest value.
        room = _furthest(exact, name) + exact.abs().amax() * 2**-8
        assert ((found - exact).abs() <= room).all()
        changed += not torch.allclose(found, exact, rtol=1e-4)
    assert changed == 14
    assert torch.equal(engine.model.get_input_embeddings().weight, full.get_input_embeddings().weight)


def test_what_was_saved_is_noted(engine: Any) -> None:
    note = next(note for note in engine.describe()["notes"] if note.startswith("quantization"))
    assert "in float32 they would take" in note
    full = weight_bytes(tiny_model(**SIZES))
    matrices = sum(
        layer.weight.nbytes
        for path, layer in tiny_model(**SIZES).named_modules()
        if path.endswith("_proj") and isinstance(layer, nn.Linear)
    )
    # A matrix takes a quarter or an eighth, and at these sizes its scales up to as much again.
    assert full - matrices < weight_bytes(engine.model) <= full - matrices / 2


def _answers(engine: Any, prompts: list[str], together: bool, **options: Any) -> list[Any]:
    def ask(prompt: str) -> Any:
        return engine.generate([{"role": "user", "content": prompt}], sampling=Sampling(max_tokens=20), **options)

    if not together:
        return [ask(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


PROMPTS = ["Harry was a dog.", "What is the answer? Look it up, look it up.", "你好", "Harry was a dog. Who was Harry?"]


def test_requests_share_forwards_and_change_nothing(engine: Any) -> None:
    batching = engine.describe()["batching"]
    if _name(engine) == "bitsandbytes-8bit":  # outliers are looked for over all rows
        pytest.skip(f"LLM.int8 rounds by all rows of a forward: {batching}")
    assert "share one forward" in batching
    alone, before = _answers(engine, PROMPTS, together=False), engine.stats()
    together, after = _answers(engine, PROMPTS, together=True), engine.stats()
    assert [reply.message.text for reply in together] == [reply.message.text for reply in alone]
    assert after["cached_prompt_tokens"] > before["cached_prompt_tokens"]  # the same prompts as before


def test_drafts_change_nothing(engine: Any, saved: Path) -> None:
    name = _name(engine)
    if name == "bitsandbytes-8bit":
        pytest.skip("LLM.int8 rounds by all rows of a forward, drafts among them")
    with Engine.load(saved, quantization=name, dtype="float32", device="cpu", drafting=False) as plain:
        expected = [reply.message.text for reply in _answers(plain, PROMPTS, together=False)]
    assert [reply.message.text for reply in _answers(engine, PROMPTS, together=False)] == expected


def test_a_grammar_holds(engine: Any) -> None:
    replies = _answers(engine, PROMPTS, together=True, spec=constraints.choice(["beagle", "poodle"]))
    assert {reply.message.text for reply in replies} <= {"beagle", "poodle"}


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_in_the_default_dtype(
    name: str, saved: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    _installed(name)
    capfd.readouterr()
    with Engine.load(saved, quantization=name, device="cpu") as engine:
        assert engine.describe()["dtype"] == "bfloat16"
        replies = _answers(engine, PROMPTS, together=True)
    assert all(reply.finish.usage.completion for reply in replies)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
