"""The code of docs/extraction_kor.md, run as it stands there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extraction_kor.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL) if PAGE.exists() else []


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not shipped with the tests")
def test_the_code_runs(embedded_folder: Path) -> None:
    shown = io.StringIO()
    assert len(blocks()) == 3
    for number, block in enumerate(blocks()):
        with contextlib.redirect_stdout(shown):
            exec(compile(block, f"block {number}", "exec", dont_inherit=True), {"__name__": f"block_{number}"})
    printed = shown.getvalue().strip()
    assert f"This prints `{printed}`." in PAGE.read_text(encoding="utf-8")
