"""The others: transformers' `generate`, its continuous batching, LangChain's HuggingFacePipeline, and vLLM.

All have the same weights, dtype, device and threads, decode greedily, and give as many ids as they are asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from chatlocal.engine import loading
from speed.children import Unavailable
from speed.machine import Facts
from speed.ours import Took
from speed.prompts import long_ids
from speed.settings import Settings

VLLM_SCRIPT = Path(__file__).parents[1] / "vllm_cpu.py"


class Generate:
    """A plain transformers model."""

    def __init__(self, settings: Settings) -> None:
        loaded = loading.load(settings.model, **settings.load)
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        # Without an end, as every side is to write equally many ids.
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def in_turn(self, prompts: list[list[int]], new: int) -> Took:
        """`generate` for one prompt after the other."""
        return self._timed(lambda: [ids for prompt in prompts for ids in self._generate([prompt], new)], new)

    def padded(self, prompts: list[list[int]], new: int) -> Took:
        """`generate` for all at once, padded on the left."""
        return self._timed(lambda: self._generate(prompts, new), new)

    def first(self, prompt: list[int]) -> float:
        """Seconds to the first id."""
        return self.in_turn([prompt], 1).seconds

    def long_first(self, length: int, start: int) -> float:
        return self.first(long_ids(self.tokenizer, length, start))

    def _timed(self, run: Callable[[], list[list[int]]], new: int) -> Took:
        with torch.inference_mode():
            start = time.perf_counter()
            ids = run()
            seconds = time.perf_counter() - start
        if any(len(one) != new for one in ids):
            raise RuntimeError(f"answers of {sorted(set(map(len, ids)))} ids in place of {new}")
        return Took(seconds, ids)

    def _generate(self, prompts: list[list[int]], new: int) -> list[list[int]]:
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        device = self.model.device
        out = self.model.generate(
            input_ids=ids.to(device), attention_mask=mask.to(device), do_sample=False, max_new_tokens=new
        )
        answers: list[list[int]] = out[:, width:].tolist()
        return answers


class ContinuousBatching(Generate):
    """transformers' own: `generate_batch` with its cache made for the requests, as its default takes most of the
    memory and much of the time."""

    def run(self, prompts: list[list[int]], new: int) -> Took:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        page = 256
        longest = max(map(len, prompts)) + new
        config = ContinuousBatchingConfig(
            page_size=page, num_blocks=2 * len(prompts) * -(-longest // page) + 16, max_batch_tokens=1024
        )
        # -1: no end.
        sampling = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)

        def batch() -> list[list[int]]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs = self.model.generate_batch(
                    prompts, generation_config=sampling, continuous_batching_config=config
                )
            failed = [output.error for output in outputs.values() if output.error]
            if failed or len(outputs) != len(prompts):
                raise RuntimeError(f"{len(outputs)} answers for {len(prompts)} prompts: {failed[:1]}")
            answers = {output.request_id: list(output.generated_tokens) for output in outputs.values()}
            return [answers[name] for name in sorted(answers, key=lambda name: int(name.rsplit("_", 1)[-1]))]

        return self._timed(batch, new)


class Pipeline(Generate):
    """langchain-huggingface's HuggingFacePipeline, all prompts in one batch."""

    def __init__(self, settings: Settings) -> None:
        from langchain_huggingface import HuggingFacePipeline
        from transformers import pipeline

        super().__init__(settings)
        self.tokenizer.padding_side = "left"
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.convert_ids_to_tokens(0)
        self._pipeline = pipeline("text-generation", model=self.model, tokenizer=self.tokenizer)
        self._make = HuggingFacePipeline

    def run(self, prompts: list[list[int]], new: int) -> Took:
        texts = [self.tokenizer.decode(prompt) for prompt in prompts]
        chain = self._make(pipeline=self._pipeline, batch_size=len(prompts))
        options = {"max_new_tokens": new, "do_sample": False, "return_full_text": False}
        start = time.perf_counter()
        answers = chain.generate(texts, pipeline_kwargs=options)
        seconds = time.perf_counter() - start
        if len(answers.generations) != len(prompts):
            raise RuntimeError(f"{len(answers.generations)} answers for {len(prompts)} prompts")
        # It gives texts; that each took `new` ids was asked for.
        return Took(seconds, [[0] * new for _ in prompts])


class Vllm:
    """vllm_cpu.py under another interpreter; it reads a line for each job and answers with a line."""

    def __init__(self, python: str | None, settings: Settings, facts: Facts, streams: int) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._why = "no --vllm-python"
        if facts.machine["device"] != "cpu":
            self._why = "vllm_cpu.py is for CPUs"
        elif python is not None:
            self._start(python, settings, facts, streams)

    def _start(self, python: str, settings: Settings, facts: Facts, streams: int) -> None:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        try:
            self._process = subprocess.Popen(
                [python, str(VLLM_SCRIPT), "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**clean, "OMP_NUM_THREADS": str(facts.threads)},
            )
        except OSError as problem:
            self._why = f"{python} does not start: {problem}"
            return
        length = min(facts.length, 2048)
        self._ready = False
        self._first = {"model": facts.folder, "dtype": settings.dtype, "streams": streams, "length": length}

    def call(self, method: str, prompts: list[list[int]], new: int) -> Took:
        if self._process is None:
            raise Unavailable(self._why)
        if not self._ready:
            self.version = self._ask(self._first)["version"]
            self._ready = True
        answer = self._ask({"prompts": prompts, "new": new})
        return Took(answer["seconds"], answer["ids"])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise Unavailable("its process ended: run vllm_cpu.py by itself to see why")
        answer: dict[str, Any] = json.loads(line)
        return answer


def versions() -> dict[str, str]:
    """Of the peers that are installed."""
    found = {}
    for name in ("langchain-huggingface", "outlines"):
        try:
            found[name] = version(name)
        except ModuleNotFoundError:
            continue
    return found
