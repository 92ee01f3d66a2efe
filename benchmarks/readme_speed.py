"""Write what performance.py measured into the README, so that no figure is typed by hand.

`python benchmarks/readme_speed.py` takes performance.json and performance.png from build/bench, keeps copies under
docs/ and renders the table between the marks of the README's section "Speed". With `--check` it changes nothing and
fails where the README does not show what docs/performance.json holds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from speed.report import head, markdown

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
CHART = "Ratios; tokens per second with the batch; the first id with the prompt; a step with the cache"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, default=ROOT / "build" / "bench", help="what performance.py wrote")
    parser.add_argument("--check", action="store_true", help="change nothing, fail where the README is out of date")
    arguments = parser.parse_args()
    if not arguments.check:
        for name in ("performance.json", "performance.png"):
            shutil.copyfile(arguments.run / name, DOCS / name)
    kept = DOCS / "performance.json"
    report = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else None
    text = README.read_text(encoding="utf-8")
    written = rendered(text, report)
    if arguments.check and written != text:
        sys.exit("README.md does not show docs/performance.json: run benchmarks/readme_speed.py.")
    if not arguments.check:
        README.write_text(written, encoding="utf-8")


def rendered(readme: str, report: dict[str, Any] | None) -> str:
    """The README with this report's table and chart between its marks, nothing for None. ValueError without marks."""
    before, mark, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the README has no {BEGIN} and {END}")
    shown = "" if report is None else f"{head(report)}.\n\n{markdown(report)}\n\n![{CHART}](docs/performance.png)\n\n"
    return f"{before}{BEGIN}\n\n{shown}{END}{after}"


if __name__ == "__main__":
    main()
