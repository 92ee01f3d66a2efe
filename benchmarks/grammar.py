"""JSON Schema grammars of chatlocal and of outlines-core, llguidance and xgrammar alone: coverage, soundness and time.

Every engine compiles every schema (undeclared keys as the schema says, separators `, ` and `: `) and walks its
documents in the tokenizer's own ids. An invalid document is excused where all keywords that it breaks are among those
that chatlocal reports as left to validation; the others report none (xgrammar warns of some on stderr). Each engine has
a process of its own with one thread and a limit on time and memory; they take turns, schema by schema. Times are CPU
times, so that other work on the machine counts little, and of what each engine hands to a sampler: from chatlocal a
bool tensor, from the others bits that a kernel of theirs has to unpack.

Without a file it takes `grammar/schemas.json` of the folder CHATLOCAL_SHARED (default: `shared` beside the repository).
`pip install -c constraints.txt -e '.[bench]'` installs the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from grammar_child import Child, Measured
from grammar_peers import ENGINES, installed_version
from grammar_report import figures, findings, summary, table
from grammar_samples import Reader, Sample
from transformers import AutoTokenizer

from chatlocal.engine.embedded import embedded_folder

SHARED = Path(os.environ.get("CHATLOCAL_SHARED", Path(__file__).parents[2] / "shared"))
DEFAULT = SHARED / "grammar" / "schemas.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "schemas", nargs="?", type=Path, help="a JSON list of {id, schema, valid: [...], invalid: [...]}"
    )
    parser.add_argument("--tokenizer", type=Path, default=None, help="folder (default: the embedded model's)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for each schema and for each document")
    parser.add_argument("--memory", type=float, default=6.0, help="gigabytes for each engine")
    parser.add_argument("--show", action="store_true", help="name what was not as it should be, and the slowest")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    arguments = parser.parse_args()
    if arguments.schemas is None and not DEFAULT.is_file():
        print(f"No schemas at {DEFAULT}: name a file of them.")
        return
    folder = arguments.tokenizer or embedded_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    samples = Reader(tokenizer).read(arguments.schemas or DEFAULT)
    versions = {name: known for name in arguments.engines if (known := version_of(name))}
    set_up, results = measure(list(versions), samples, folder, arguments.limit, arguments.memory)
    pairs = {name: list(zip(samples, measured, strict=True)) for name, measured in results.items()}
    common = [
        place
        for place in range(len(samples))
        if all(measured[place].status == "accepted" for measured in results.values())
    ]
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "tokenizer": f"{folder.name}, {len(tokenizer):,} ids",
        "schemas": len(samples),
        "valid": sum(document.valid for sample in samples for document in sample.documents),
        "invalid": sum(not document.valid for sample in samples for document in sample.documents),
        "unspelled": sum(sample.unspelled for sample in samples),
        "limit": arguments.limit,
        "missing": [name for name in arguments.engines if name not in versions],
        "common": len(common),
        "engines": {
            name: {
                "version": versions[name],
                "schemas": len(samples),
                "set up, s": set_up[name],
                **summary(pairs[name]),
                "common": figures([pairs[name][place] for place in common]),
            }
            for name in versions
        },
    }
    report["findings"] = [line for name in versions for line in findings(name, pairs[name])]
    if arguments.json:
        print(json.dumps(report))
    else:
        print(table(report), *(report["findings"] if arguments.show else ()), sep="\n")


def measure(
    names: list[str], samples: list[Sample], tokenizer: Path, limit: float, memory: float
) -> tuple[dict[str, float], dict[str, list[Measured]]]:
    """The seconds that each engine took to be ready, and what each schema came to."""
    children: dict[str, Child] = {}
    try:
        for name in names:
            children[name] = Child(name, tokenizer, limit, memory)
        set_up = {name: child.set_up for name, child in children.items()}
        results: dict[str, list[Measured]] = {name: [] for name in names}
        for sample in samples:
            for name, child in children.items():
                results[name].append(child.measure(sample))
    finally:
        for child in children.values():
            child.close()
    return set_up, results


def version_of(name: str) -> str | None:
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
