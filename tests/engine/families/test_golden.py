"""Prompts of every family as the references write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chatlocal.engine import families
from chatlocal.engine.errors import TemplateError, UnsupportedInput

_GOLDEN = Path(__file__).parents[2] / "golden" / "prompts.json"
CASES = json.loads(_GOLDEN.read_text("utf-8"))
# The reference's segments show a control token where a user typed one; its ids, which decide, have none there.
_OVERRULED = "codegeex2/inject"


def rendered(case: dict[str, Any]) -> families.Prompt:
    return families.get(case["family"]).render(
        case["messages"], case.get("tools"), case["add_generation_prompt"], **case.get("template_kwargs") or {}
    )


def segments(case: dict[str, Any]) -> list[dict[str, Any]]:
    if case["id"] == _OVERRULED:
        return [{"special": "[gMASK]"}, {"special": "sop"}, {"text": case["messages"][0]["content"]}]
    expected: list[dict[str, Any]] = case["expected_segments"]
    return expected


@pytest.mark.parametrize("case", [case for case in CASES if "error" not in case], ids=lambda case: case["id"])
def test_prompts_are_those_of_the_reference(case: dict[str, Any]) -> None:
    prompt = rendered(case)
    assert prompt.text == case["expected_prompt"]
    assert list(prompt.segments) == segments(case)
    assert list(prompt.stop_strings) == case["stop_words"]


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: case["id"])
def test_what_the_reference_refuses_is_refused_by_name(case: dict[str, Any]) -> None:
    with pytest.raises((TemplateError, UnsupportedInput), match=case["family"]):
        rendered(case)


def test_every_family_has_a_case() -> None:
    assert {case["family"] for case in CASES} == set(families.names())
