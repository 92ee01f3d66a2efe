"""Whether a request's ids depend on what else is in the batch: 16 prompts alone, and the same 16 at once.

Greedy and seeded. In float32 all answers should agree; in bfloat16 two nearly equal logits may fall either way.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from speed.prompts import TOPICS

from chatlocal.engine import Engine, Sampling
from chatlocal.engine.runtime.backend import Request, Tokens

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "seeded": Sampling(temperature=0.8, top_p=0.95, seed=7),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--new", type=int, default=32, help="new ids for each answer")
    arguments = parser.parse_args()
    print(f"{'':10}{'':10}{'answers equal':>15}{'ids equal':>12}")
    for dtype in ("float32", "bfloat16"):
        with Engine.load(arguments.model, dtype=dtype) as engine:
            prompts = [
                engine.render([{"role": "user", "content": f"Tell me a story about {topic}."}]).ids(engine.tokenizer)
                for topic in TOPICS
            ]
            for name, sampling in SAMPLINGS.items():
                compare(dtype, name, prompts, engine, replace(sampling, max_tokens=arguments.new))


def compare(dtype: str, name: str, prompts: list[tuple[int, ...]], engine: Engine, sampling: Sampling) -> None:
    def run(prompt: tuple[int, ...]) -> list[int]:
        events = engine.backend.submit(Request(prompt, sampling))
        return [id for event in events if isinstance(event, Tokens) for id in event.ids]

    alone = [run(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        together = list(threads.map(run, prompts))
    answers = sum(one == other for one, other in zip(alone, together, strict=True))
    # Up to the first difference: after it the two answers have different contexts.
    same = sum(common(one, other) for one, other in zip(alone, together, strict=True))
    total = sum(map(len, alone))
    print(f"{dtype:10}{name:10}{f'{answers}/{len(prompts)}':>15}{f'{same}/{total}':>12}")


def common(one: list[int], other: list[int]) -> int:
    """The length of the common beginning."""
    for place, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return place
    return min(len(one), len(other))


if __name__ == "__main__":
    main()
