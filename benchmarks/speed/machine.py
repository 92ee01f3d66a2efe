"""What is measured and on what: facts of the model and of the machine, for the head of the table."""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from chatlocal.engine import loading
from chatlocal.engine.context_length import context_length
from chatlocal.engine.engine import Engine
from speed.settings import Settings


@dataclass(frozen=True)
class Facts:
    """`weights` are bytes, each weight counted once; `read` are those that one new id has to read."""

    name: str
    folder: str
    length: int
    weights: int
    read: int
    cache: int
    """Bytes of keys and values for one position, all layers."""
    threads: int
    machine: dict[str, Any] = field(default_factory=dict)


class Look:
    """Loads the model once, looks at it and writes the prompts; a side for a Child."""

    def __init__(self, settings: Settings) -> None:
        loaded = loading.load(settings.model, **settings.load)
        self._loaded = loaded
        # The family is found by what the tokenizer brings; nothing is run here.
        self._engine = Engine(loaded.model, loaded.tokenizer, backend=_Silent(), name=loaded.name)

    def facts(self) -> Facts:
        model, config = self._loaded.model, self._loaded.model.config.get_text_config()
        embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
        weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        tied = head is None or head.weight.data_ptr() == embedding.data_ptr()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return Facts(
            name=self._loaded.name,
            folder=str(self._loaded.folder),
            length=context_length(model.config, self._loaded.tokenizer) or 2048,
            weights=weights,
            read=weights if tied else weights - embedding.numel() * embedding.element_size(),
            cache=2 * config.num_hidden_layers * heads * dim * embedding.element_size(),
            threads=torch.get_num_threads(),
            machine=describe(model.device),
        )

    def prompts(self, texts: list[str]) -> list[list[int]]:
        """The ids of a conversation that each text begins."""
        return [
            list(self._engine.render([{"role": "user", "content": text}]).ids(self._engine.tokenizer)) for text in texts
        ]


class _Silent:
    """A backend that is never asked."""

    def submit(self, request: Any) -> Any:
        raise NotImplementedError

    def score(self, prompt_ids: Any, continuations: Any) -> Any:
        raise NotImplementedError


def describe(device: torch.device) -> dict[str, Any]:
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "load": load,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def processor() -> str:
    """The processor's name, and which of the instructions for matrices it has."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    rows = dict(line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    rows = {key.strip(): value.strip() for key, value in rows.items()}
    flags = rows.get("flags", "").split()
    has = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags]
    return f"{rows.get('model name', platform.machine())} ({has[0] if has else 'no vector instructions known'})"
