"""Models of many kinds run right, together where they can, and say so where they cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, T5Config, T5ForConditionalGeneration

from chatlocal.engine.errors import ModelLoadError
from chatlocal.engine.runtime import runner_choice, scheduler
from chatlocal.engine.runtime.runner_choice import choose_runner
from chatlocal.engine.runtime.single_runners import PlainRunner, RereadingRunner
from chatlocal.engine.runtime.slot_runner import SlotRunner
from tests.engine.runtime.architectures import GPT_SIZES, architecture
from tests.engine.runtime.running import generated, prompt, read_in_pieces, request, run_together, tiny_backend
from tests.tiny import tiny_model

SHARED: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with eager attention": {"kind": "llama", "attention": "eager"},
    "llama with an untied head": {"kind": "llama", "tie_word_embeddings": False},
    "llama with a tied head": {"kind": "llama", "tie_word_embeddings": True},
    "mistral without a window": {"kind": "mistral", "sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gpt2": {"sizes": GPT_SIZES},
    "gpt2 with eager attention": {"kind": "gpt2", "sizes": GPT_SIZES, "attention": "eager"},
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "falcon": {},
    "stablelm": {},
    "deepseek_v3": {  # keys and values of different sizes
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
}

ONE_BY_ONE: dict[str, tuple[dict[str, Any], str]] = {
    "mistral": ({"sliding_window": 8}, "DynamicSlidingWindowLayer"),
    "qwen2": ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "DynamicSlidingWindowLayer"),
    "gemma2": ({"head_dim": 8, "sliding_window": 8}, "DynamicSlidingWindowLayer"),
    "gemma3_text": ({"head_dim": 8, "sliding_window": 8}, "DynamicSlidingWindowLayer"),
    "gpt_neo": (
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 8},
        "masks of its own",
    ),
    "bloom": ({"n_layer": 2, "n_head": 4}, "masks of its own"),
    "mamba": ({"state_size": 8}, "LinearAttentionLayer"),
    "lfm2": ({"layer_types": ["conv", "full_attention"]}, "LinearAttentionLayer"),
    "llama": (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
        "'dynamic' depend on the longest text",
    ),
}

LENGTHS = (3, 30, 12, 1, 19)


def assert_generates(model: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Five requests at once, prompts read in pieces, against transformers; says how the model ran."""
    read_in_pieces(monkeypatch, 8, 3)
    prompts = [prompt(length, seed=length) for length in LENGTHS]
    with tiny_backend(model) as backend:
        together = run_together(backend, [request(ids, new=8) for ids in prompts])
        assert together == [generated(model, ids, 8) for ids in prompts]
        return str(backend.describe()["batching"])


@pytest.mark.parametrize("name", SHARED)
def test_plain_caches_share_forwards(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = architecture(**{"kind": name, **SHARED[name]})
    assert isinstance(choose_runner(model).runner, SlotRunner)
    assert assert_generates(model, monkeypatch) == "requests share one forward for each step"


def test_padding_names_no_position_that_the_model_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last 20 ids of a prompt are read beside 50 of another: 30 pads, where the model has 8 positions left."""
    model = architecture("gpt2", GPT_SIZES)
    monkeypatch.setattr(scheduler, "_PREFILL_IDLE", (100, 100))
    prompts = [prompt(120), prompt(50)]
    with tiny_backend(model) as backend:
        together = run_together(backend, [request(ids, new=5) for ids in prompts])
    assert together == [generated(model, ids, 5) for ids in prompts]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_other_caches_run_one_by_one_and_say_why(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, reason = ONE_BY_ONE[name]
    model = architecture(name, **settings)
    assert isinstance(choose_runner(model).runner, PlainRunner)
    how = assert_generates(model, monkeypatch)
    assert "one by one" in how
    assert reason in how


def test_a_state_that_fits_no_cache_is_made_anew_for_each_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """RWKV hands a state around that no cache of transformers holds."""
    model = architecture("rwkv", attention_hidden_size=32)
    assert isinstance(choose_runner(model).runner, RereadingRunner)
    prompts = [prompt(length, seed=length) for length in LENGTHS]
    with tiny_backend(model) as backend:
        together = run_together(backend, [request(ids, new=4) for ids in prompts])
        assert "over the whole text" in backend.describe()["batching"]
    for ids, new in zip(prompts, together, strict=True):
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([[*ids, *new]])).logits[0]
        assert new == logits[len(ids) - 1 : -1].argmax(-1).tolist()


class ForgetfulLlama(LlamaForCausalLM):
    """Attends to nothing before the ids of this call: only a probe can tell."""

    def forward(self, input_ids: torch.Tensor, **arguments: Any) -> Any:
        for name in ("cache", "past_key_values", "attention_mask", "position_ids"):
            arguments.pop(name, None)
        return super().forward(input_ids=input_ids, **arguments)


class StubbornLlama(LlamaForCausalLM):
    """Takes no cache of another's making."""

    def forward(self, input_ids: torch.Tensor, **arguments: Any) -> Any:
        if arguments.get("cache") is not None or arguments.get("past_key_values") is not None:
            raise AttributeError("this is not my cache")
        return super().forward(input_ids=input_ids, **arguments)


@pytest.mark.parametrize(("kind", "reason"), [(ForgetfulLlama, "other logits"), (StubbornLlama, "not my cache")])
def test_a_model_that_does_not_do_what_it_says_is_found_out(kind: Any, reason: str) -> None:
    model = tiny_model()
    expected = generated(model, prompt(9), 6)
    model.__class__ = kind
    choice = choose_runner(model)
    assert isinstance(choice.runner, RereadingRunner)
    assert reason in choice.how
    with tiny_backend(model) as backend:
        assert run_together(backend, [request(prompt(9), new=6)]) == [expected]


def test_attention_that_takes_no_mask_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_choice.CausalModel, "attention", "flash_attention_2")
    choice = choose_runner(tiny_model())
    assert isinstance(choice.runner, PlainRunner)
    assert "flash_attention_2" in choice.how


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_share_forwards_too(dtype: torch.dtype) -> None:
    assert isinstance(choose_runner(tiny_model().to(dtype)).runner, SlotRunner)


def test_the_width_is_that_of_the_logits() -> None:
    assert choose_runner(tiny_model(vocab_size=600)).width == 600


def test_a_model_whose_cache_transformers_does_not_know_is_not_mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    expected = generated(model, prompt(9), 6)
    cache = runner_choice.DynamicCache

    def unknown(config: Any) -> Any:
        raise AttributeError("no such thing in this configuration")

    for make in (unknown, lambda config: cache()):
        monkeypatch.setattr(runner_choice, "DynamicCache", make)
        choice = choose_runner(model)
        assert isinstance(choice.runner, PlainRunner)
        assert "knows no cache" in choice.how
        with tiny_backend(model) as backend:
            assert run_together(backend, [request(prompt(9), new=6)]) == [expected]


def test_a_model_that_cannot_continue_a_text_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"T5ForConditionalGeneration cannot continue .* choose a causal"):
        choose_runner(
            T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2))
        )
