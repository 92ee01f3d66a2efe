"""How fast a long document is read: `extract_documents` against a loop of single calls over the same parts.

One document of `--characters` (long_document.py), one engine, the same extractor, the same parts. The sides take turns,
round by round; the first round is not counted, a figure is the median of the others. Both sides reuse prefixes: every
prompt begins with the same instructions. What is found is compared with what is in the text. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from long_document import Visit, long_document

from chatlocal import Engine
from chatlocal.extractors import Extractor, extract_documents
from chatlocal.extractors.merging import merge, moved
from chatlocal.extractors.results import Extraction
from chatlocal.extractors.splitting import split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: embedded)")
    parser.add_argument("--characters", type=int, default=6_000)
    parser.add_argument("--part-tokens", type=int, default=128)
    parser.add_argument("--overlap-tokens", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2, help="rounds that count")
    parser.add_argument("--method", choices=("write", "choose"), default="write", help="how the model answers")
    parser.add_argument("--dtype", default="float32", help="in float32 both sides find the same (default)")
    arguments = parser.parse_args()

    text, visits = long_document(arguments.characters)
    cutting = {"part_tokens": arguments.part_tokens, "overlap_tokens": arguments.overlap_tokens}
    with Engine.load(arguments.model, dtype=arguments.dtype, max_batch=arguments.concurrency) as engine:
        extractor = Extractor(list[Visit], engine, method=arguments.method)
        parts = split(
            text, extractor.count_tokens, max_tokens=arguments.part_tokens, overlap_tokens=arguments.overlap_tokens
        )

        def one_by_one() -> Extraction:
            answers = [moved(extractor.extract(text[part.start : part.end]), part, "1") for part in parts]
            return merge(list(zip(parts, answers, strict=True)), extractor.schema, document="1")

        def at_once() -> Extraction:
            run = extract_documents(extractor, [text], **cutting, concurrency=arguments.concurrency, progress=False)
            return next(iter(run))

        sides: dict[str, Callable[[], Extraction]] = {"one by one": one_by_one, "extract_documents": at_once}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        found: dict[str, Extraction] = {}
        for number in range(arguments.rounds + 1):
            for name, side in sides.items():
                began = time.perf_counter()
                found[name] = side()
                if number:
                    seconds[name].append(time.perf_counter() - began)
        machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
        print(f"{engine.name}, {arguments.dtype}, method {arguments.method!r}, {machine}")
        print(f"{len(text)} characters in {len(parts)} parts of at most {arguments.part_tokens} tokens\n")
        for name in sides:
            took = statistics.median(seconds[name])
            said = found[name]
            print(
                f"{name:18} {took:7.1f} s {len(text) / took:7.0f} characters/s {len(parts) / took:6.2f} parts/s"
                f"  {score(said, visits)}{usage(said)}"
            )
        ratio = statistics.median(seconds["one by one"]) / statistics.median(seconds["extract_documents"])
        same = found["one by one"].data == found["extract_documents"].data
        print(f"\nextract_documents is {ratio:.2f} times as fast, and found {'the same' if same else 'other records'}")


def score(extraction: Extraction, visits: list[Any]) -> str:
    """How many of the visits were found as they are, and what else was."""
    wanted = {(visit.ship, visit.city) for visit in visits}
    got = [(record.data["ship"], record.data["city"]) for record in extraction.records]
    return f"{len(wanted & set(got))} of {len(wanted)} visits found, {len(got)} records"


def usage(extraction: Extraction) -> str:
    told = extraction.usage
    return (
        f", {told['cached_tokens']} of {told['prompt_tokens']} ids of prompts reused" if "cached_tokens" in told else ""
    )


if __name__ == "__main__":
    main()
