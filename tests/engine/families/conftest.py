"""The embedded model's tokenizer, and templates of kinds that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer


@pytest.fixture(scope="session")
def embedded_tokenizer(embedded_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(embedded_folder)
