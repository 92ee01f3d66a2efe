"""docs/extraction.md: its code runs as it stands there, on the embedded model, and prints what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "extraction.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not shipped with the tests")
def test_the_code_runs(embedded_folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert run.returncode == 0, run.stderr
    said = re.search(r"print\(found\.value\)  # (.*)", page)
    assert said is not None
    assert run.stdout.splitlines()[0] == said[1]
